package extauthz

import (
	"bytes"
	"maps"
	"sync/atomic"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies"
)

// swap is the next snapshot, and whose live streams it concerns.
type swap struct {
	*Snapshot

	// ended are the servers that are disabled, or were since: their streams
	// have to end. Those of a deleted one are ended, and counted, by its entry
	// in the revocation log.
	ended  []identity.ServerID
	policy bool                // it is another one: every stream is decided again
	seen   []identity.ServerID // servers of which policies see something new, or that hold other tools
}

// decideBy takes another policy, unless it is the one that decides already.
func (s *swap) decideBy(in *pb.Policy) error {
	if s.Snapshot.policy != nil && s.Snapshot.policy.Revision() == in.GetRevision() {
		return nil
	}
	policy, err := parsePolicy(in)
	if err != nil {
		return err
	}
	s.Snapshot.policy, s.policy = policy, true
	return nil
}

// replace takes the newest record of a server.
func (s *swap) replace(srv *server, owned *[256]bool) {
	before := s.servers.find(srv.id)
	isSame := before != nil && sameToPolicies(&before.seen, &srv.seen) && sameTools(before, srv)
	if srv.seenAs = recordsFirst + recordsSeen.Add(1); isSame {
		srv.seenAs = before.seenAs
	}
	s.servers.set(srv.id, srv, owned)
	switch {
	case !srv.enabled || before != nil && before.stopped < srv.stopped:
		s.ended = append(s.ended, srv.id)
	case before != nil && !isSame:
		s.seen = append(s.seen, srv.id)
	}
}

// sameTools reports that two records of a server hold the same tools.
func sameTools(a, b *server) bool {
	return a.denyChanged == b.denyChanged && maps.Equal(a.changed, b.changed)
}

// What policies see of servers is numbered from the time on, so that the
// question of a process before this one is told apart.
var (
	recordsFirst = uint64(time.Now().UnixNano())
	recordsSeen  atomic.Uint64
)

// sameToPolicies reports that no policy can tell two records of a server apart.
func sameToPolicies(a, b *policies.Server) bool {
	return a.ID == b.ID && a.Name == b.Name && maps.Equal(a.Labels, b.Labels) &&
		bytes.Equal(a.Grants, b.Grants) && bytes.Equal(a.Data, b.Data)
}
