package extauthz_test

import (
	"strings"
	"testing"

	procfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

// TestListThatComesAsAnotherAnswer: a server that finds the connection of an
// answer by the id alone sends the list to whoever used the id last.
func TestListThatComesAsAnotherAnswer(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	l := newLister(t, f, srv)
	_ = f.mustCheck(l.in) // the list is under way
	for _, body := range []string{toolCallAs("1"), toolCallAs(`"1"`), strings.Replace(toolsList, "tools/list", "ping", 1)} {
		in := l.in
		in.body = body
		for media, parts := range map[string][2]string{
			jsonMedia: {threeTools, echoOnly},
			sseMedia:  {"data: " + threeTools + "\n\n", "data: " + echoOnly + "\n\n"},
		} {
			g := l.guard.answer(t, in, false, ":status", "200", "content-type", media)
			if got := g.recv().GetModeOverride().GetResponseBodyMode(); got != procfilterv3.ProcessingMode_STREAMED {
				t.Fatalf("%s: the body is not looked at: %v", body, got)
			}
			if got := g.through(parts[0]); got != parts[1] {
				t.Errorf("%s was answered %s", body, got)
			}
			g.finish()
		}
	}
}

func toolCallAs(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo"}}`
}
