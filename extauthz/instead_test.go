package extauthz

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
)

// toEnvoy keeps what Guard tells Envoy.
type toEnvoy struct {
	procv3.ExternalProcessor_ProcessServer

	last *procv3.ProcessingResponse
}

func (e *toEnvoy) Send(out *procv3.ProcessingResponse) error {
	e.last = out
	return nil
}

func (*toEnvoy) Context() context.Context { return context.Background() }

// An answer that is broken off says what was decided: a denial and a fault of
// the gateway's are no allow, and a 401 says how to do better.
func TestAnswersInsteadOfAListSayWhatWasDecided(t *testing.T) {
	s := &Server{cfg: Config{Slog: slog.New(slog.DiscardHandler)}, metrics: &metrics{replaced: prometheus.NewCounter(prometheus.CounterOpts{})}}
	s.snapshot.Store(&Snapshot{gateway: &gateway{base: origin{text: "https://gateway.example"}}})
	envoy := &toEnvoy{}
	f := &listFilter{g: &guard{server: s, stream: envoy}, n: &note{Request: "request-1"}, stream: true}
	breakOff := func(why error) func() error { return func() error { return f.breakOff(why) } }
	for _, row := range []struct {
		name     string
		end      func() error
		status   int
		decision string
	}{
		{"a credential that was revoked", breakOff(deny(reasonRevoked)), http.StatusUnauthorized, "deny"},
		{"a server that was disabled", breakOff(deny(reasonServerDisabled)), http.StatusForbidden, "deny"},
		{"a policy that errs", breakOff(errors.New("policy: it errs")), http.StatusServiceUnavailable, "deny"},
		{"a list that cannot be read", breakOff(&lists.Refusal{}), http.StatusBadGateway, "allow"},
		{"too late", func() error { f.expire(); return nil }, http.StatusGatewayTimeout, "allow"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := row.end(); err != nil {
				t.Fatal(err)
			}
			got := envoy.last.GetImmediateResponse()
			lines := map[string]string{}
			for _, line := range got.GetHeaders().GetSetHeaders() {
				lines[line.GetHeader().GetKey()] = string(line.GetHeader().GetRawValue())
			}
			if int(got.GetStatus().GetCode()) != row.status || lines["arbiter-decision"] != row.decision {
				t.Errorf("%v %v", got.GetStatus(), lines)
			}
			challenged := strings.HasPrefix(lines["www-authenticate"], `Bearer resource_metadata="https://gateway.example/`)
			if challenged != (row.status == http.StatusUnauthorized) {
				t.Errorf("the challenge is %q", lines["www-authenticate"])
			}
		})
	}
}
