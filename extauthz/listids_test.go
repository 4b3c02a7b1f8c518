package extauthz

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	"github.com/arbiter-gateway/arbiter/extauthz/session"
)

// asks is a request of one method with these ids, in an upstream's session.
func asks(upstream, method string, ids ...string) *decision {
	d := &decision{req: &request{transport: jsonrpc.MCP, method: "POST"}, srv: &server{id: [16]byte{1}}}
	d.session = &session.Session{Upstream: upstream, HasUpstream: upstream != ""}
	for _, id := range ids {
		d.call.messages = append(d.call.messages, jsonrpc.Message{Kind: jsonrpc.Request, Method: method, ID: jsontext.Value(id)})
	}
	return d
}

func TestIDsOfListsAreRemembered(t *testing.T) {
	l := newListIDs()
	for _, id := range []string{`"z"`, `7`, `"0"`} {
		if l.notes(asks("s", "tools/list", id), 0) {
			t.Error("a list is looked through anyway")
		}
	}
	other := asks("s", "tools/call", `"z"`)
	other.srv = &server{id: [16]byte{2}}
	response := asks("s", "", `"z"`)
	response.call.messages[0].Kind = jsonrpc.Response
	for _, row := range []struct {
		name string
		in   *decision
		at   time.Duration
		want bool
	}{
		{"a call with the id", asks("s", "tools/call", `"z"`), 0, true},
		{"upkeep with the id", asks("s", "ping", `"z"`), 0, true},
		{"a batch with the id", asks("s", "tools/call", `1`, `"z"`), 0, true},
		{"the id, escaped", asks("s", "tools/call", `"\u007a"`), 0, true},
		{"a number as a text", asks("s", "tools/call", `"7"`), 0, true},
		{"minus nought", asks("s", "tools/call", `-0`), 0, true},
		{"another id", asks("s", "tools/call", `"y"`), 0, false},
		{"another case", asks("s", "tools/call", `"Z"`), 0, false},
		{"another session", asks("other", "tools/call", `"z"`), 0, false},
		{"no session", asks("", "tools/call", `"z"`), 0, false},
		{"another server", other, 0, false},
		{"a response", response, 0, false},
		{"before a life is over", asks("s", "tools/call", `"z"`), listIDLife - 1, true},
		{"between one and two lives", asks("s", "tools/call", `"z"`), 2*listIDLife - 2, true},
		{"after two lives", asks("s", "tools/call", `"z"`), 4 * listIDLife, false},
	} {
		if got := l.notes(row.in, row.at); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestTooManyIDsOfListsAreAll: who asks for lists without end has everything
// looked through, and nobody's memory grows.
func TestTooManyIDsOfListsAreAll(t *testing.T) {
	l := newListIDs()
	for i := range len(l.shards) * listIDMost * 2 {
		l.notes(asks("s", "tools/list", fmt.Sprint(i)), 0)
	}
	for i := range l.shards {
		if n := len(l.shards[i].now); n != listIDMost {
			t.Fatalf("shard %d has %d", i, n)
		}
	}
	if !l.notes(asks("s", "tools/call", `"never"`), 0) || !l.notes(asks("s", "tools/call", `"never"`), listIDLife) {
		t.Error("an id that may be that of a list is let through")
	}
	if l.notes(asks("s", "tools/call", `"never"`), 3*listIDLife) {
		t.Error("it is for ever")
	}
}

func TestReusedIDIsMarkedAsAList(t *testing.T) {
	d := asks("s", "ping", `1`)
	if markOf(d) != markFaults {
		t.Errorf("marked %q", markOf(d))
	}
	if d.reused = true; markOf(d) != markList || !d.askedAgain() {
		t.Errorf("marked %q, question %v", markOf(d), d.askedAgain())
	}
	get := asks("s", "tools/call")
	if get.req.method = "GET"; markOf(get) != markList {
		t.Errorf("a GET is marked %q", markOf(get))
	}
}

func BenchmarkListIDs(b *testing.B) {
	l, d := newListIDs(), asks(strings.Repeat("s", 36), "tools/call", `12345`)
	b.ReportAllocs()
	for b.Loop() {
		l.notes(d, 0)
	}
}
