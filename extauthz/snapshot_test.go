package extauthz

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies"
)

// serversAdded is one pushed update of servers, each with a URL that tells of
// the update.
func serversAdded(ids []identity.ServerID, update int) []change {
	var out []change
	for _, id := range ids {
		out = append(out, change{server: &pb.Server{
			Id: id.String(), Enabled: true, MaxBody: 1, CallLimitSeconds: 1,
			Rpc: &pb.Upstream{Url: fmt.Sprintf("http://127.0.0.1:1/%d", update), Cluster: "plain"},
		}})
	}
	return out
}

// A request that has loaded a snapshot goes on by it, whatever is pushed
// meanwhile. Only what nobody may decide by is added to in place.
func TestSnapshotStaysAsItIs(t *testing.T) {
	var ids []identity.ServerID
	for range 600 { // some share a shard
		ids = append(ids, identity.NewServerID())
	}
	var s *Snapshot
	for update, part := range [][]identity.ServerID{ids[:200], ids[200:400]} {
		next, err := s.with(serversAdded(part, update))
		if err != nil {
			t.Fatal(err)
		}
		s = next.Snapshot
	}
	if s.Ready() || s.Servers() != 400 {
		t.Fatalf("before the last update: ready %v, %d servers", s.Ready(), s.Servers())
	}
	s.loaded = true // as Server.apply says of the last one
	next, err := s.with(append(serversAdded(ids[100:], 2), change{removed: ids[0].String()}))
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		was, is := s.servers.find(id), next.servers.find(id)
		if pathOf(was) != []string{"/0", "/1", ""}[i/200] {
			t.Errorf("server %d of the older snapshot leads to %q", i, pathOf(was))
		}
		if i >= 100 && pathOf(is) != "/2" || i == 0 && is != nil {
			t.Errorf("server %d of the newer snapshot leads to %q", i, pathOf(is))
		}
	}
}

// pathOf is where a server's requests go; "" when there is no server.
func pathOf(srv *server) string {
	if srv == nil {
		return ""
	}
	return srv.rpc.url.Path()
}

// Settings by which a policy would see a credential, or change how a request is
// framed, routed or understood, are refused whole.
func TestGatewayRefusesHeaderNames(t *testing.T) {
	good := func() *pb.Gateway {
		return &pb.Gateway{BaseUrl: "https://localhost:8443", PolicyRequestHeaders: []string{"x-team"}, PolicyUpstreamHeaders: []string{"x-team"}}
	}
	if _, err := parseGateway(good()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "last-event-id", "mcp-session-id", "X-Team", "", "x_team", "a\r\nb", "a b"} {
		settings := good()
		settings.PolicyRequestHeaders = []string{"x-team", name}
		if _, err := parseGateway(settings); err == nil {
			t.Errorf("a policy may see %q", name)
		}
	}
	for _, name := range []string{
		"authorization", "content-length", "transfer-encoding", "host", "x-arbiter-principal-id", "x-arbiter-policy-a", "x-envoy-original-path",
		"mcp-session-id", "x-forwarded-for", "accept-encoding", "X-Team", "", "x_team", "a\r\nb",
	} {
		settings := good()
		settings.PolicyUpstreamHeaders = []string{"x-team", name}
		if _, err := parseGateway(settings); err == nil {
			t.Errorf("a policy may set %q", name)
		}
	}
}

// Whatever a policy can read of a server has its streams decided again when it
// changes. A part that is new belongs into sameToPolicies and here.
func TestEveryPartOfAServerIsCompared(t *testing.T) {
	a := policies.Server{Name: "a", Labels: map[string]string{"team": "a"}, Grants: jsontext.Value("[]"), Data: jsontext.Value("{}")}
	const parts = 6 // the last one is what policies makes of the others
	if n := reflect.TypeFor[policies.Server]().NumField(); n != parts {
		t.Errorf("a server has %d parts, %d are compared", n, parts)
	}
	if b := (policies.Server{Name: "a", Labels: map[string]string{"team": "a"}, Grants: jsontext.Value("[]"), Data: jsontext.Value("{}")}); !sameToPolicies(&a, &b) {
		t.Error("two records that say the same are told apart")
	}
	for name, b := range map[string]*policies.Server{
		"id":     {ID: identity.NewServerID(), Name: a.Name, Labels: a.Labels, Grants: a.Grants, Data: a.Data},
		"name":   {Name: "b", Labels: a.Labels, Grants: a.Grants, Data: a.Data},
		"labels": {Name: a.Name, Labels: map[string]string{"team": "b"}, Grants: a.Grants, Data: a.Data},
		"grants": {Name: a.Name, Labels: a.Labels, Data: a.Data},
		"data":   {Name: a.Name, Labels: a.Labels, Grants: a.Grants, Data: jsontext.Value(`{"a":1}`)},
	} {
		if sameToPolicies(&a, b) {
			t.Errorf("another %s is not seen", name)
		}
	}
}
