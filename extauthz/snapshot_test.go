package extauthz

import (
	"fmt"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
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
		var err error
		if s, _, err = s.with(serversAdded(part, update)); err != nil {
			t.Fatal(err)
		}
	}
	if s.Ready() || s.Servers() != 400 {
		t.Fatalf("before the last update: ready %v, %d servers", s.Ready(), s.Servers())
	}
	s.loaded = true // as Server.apply says of the last one
	next, _, err := s.with(append(serversAdded(ids[100:], 2), change{removed: ids[0].String()}))
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
