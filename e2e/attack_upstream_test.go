//go:build e2e

package e2e

import (
	"io"
	"net/http"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// HTTP/2 upstreams would get trailers; HTTP/1.1 ones cannot. What stands in
// them was seen by nobody who decides.
func TestGatewayDropsTrailersTowardsHTTP2Upstreams(t *testing.T) {
	t.Parallel()
	type request struct {
		proto, body     string
		header, trailer http.Header
	}
	seen := make(chan request, 1)
	authority := testfleet.NewAuthority(t, "upstream")
	leaf := authority.Leaf(t, "127.0.0.1")
	origin := testfleet.NewHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // trailers are there afterwards
		seen <- request{r.Proto, string(body), r.Header, r.Trailer}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}), &leaf)
	f := front{gateway: shared}
	f.server = f.addServer(t, "", origin+"/rpc", "--ca", authority.File(t))
	_, f.token = f.addToken(t, f.server)
	fields := f.fields("POST", f.rpc(), [2]string{"cookie", "a=b"}, [2]string{"x-arbiter-server", "x"})
	got := f.frames(t, h2{fields: fields, body: ping, trailers: [][2]string{{"authorization", "Bearer x"}, {"x-arbiter-server", "x"}, {"x-late", "1"}}})
	if got.status != 200 {
		t.Fatalf("status %d, body %s, want 200", got.status, got.body)
	}
	r := <-seen
	if r.proto != "HTTP/2.0" || r.body != ping || len(r.trailer) > 0 {
		t.Errorf("the upstream saw %s %q, trailers %v, want HTTP/2.0 without trailers", r.proto, r.body, r.trailer)
	}
	if len(r.header.Values("Authorization"))+len(r.header.Values("Cookie")) > 0 || r.header.Get("X-Arbiter-Server") != f.server {
		t.Errorf("the upstream saw %v", r.header)
	}
}
