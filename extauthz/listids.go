package extauthz

import (
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// listIDs remembers under which ids a session asked for lists. Some servers find
// the connection of an answer by the id alone (the SDKs for Python and TypeScript
// do): who sends another request with the id of a list that is still to come gets
// the list as its answer. So whatever comes with such an id is looked through
// like a list. MCP forbids to use an id twice (2025-11-25, basic, "Requests").
//
// An id is remembered for at least listIDLife. Where there are too many at once,
// every id counts as remembered until there is room again.
type listIDs struct {
	seed   maphash.Seed
	shards [64]listIDShard
}

type listIDShard struct {
	mu     sync.Mutex // guards the rest
	began  time.Duration
	now    map[uint64]struct{} // asked for since began
	before map[uint64]struct{} // and in the listIDLife before that
}

const (
	listIDLife = 10 * time.Minute // the default call limit
	listIDMost = 8192             // of one shard in a listIDLife
)

func newListIDs() *listIDs { return &listIDs{seed: maphash.MakeSeed()} }

// notes remembers the ids of a request for lists. Of any other request it reports
// whether one of its ids is remembered. at is the time since the machine started.
func (l *listIDs) notes(d *decision, at time.Duration) (reused bool) {
	if d.session == nil || !d.session.HasUpstream {
		return false // each request is answered by itself
	}
	asks := listing(d.req.transport, d.call.messages)
	for _, m := range d.call.messages {
		if m.Kind != jsonrpc.Request {
			continue
		}
		key := l.key(d.srv.id[:], d.session.Upstream, m.ID)
		shard := &l.shards[key%uint64(len(l.shards))]
		if asks {
			shard.add(key, at)
		} else if shard.has(key, at) {
			reused = true
		}
	}
	return reused
}

// key names an id of a session of an upstream, however it is spelled: servers
// take 1 and "1" for one.
func (l *listIDs) key(server []byte, session string, id jsontext.Value) uint64 {
	text := string(id)
	if id.Kind() == '"' {
		if unquoted, err := jsontext.AppendUnquote(nil, id); err == nil {
			text = string(unquoted)
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil { // -0, too
		text = strconv.FormatInt(n, 10)
	}
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.Write(server)
	_, _ = h.WriteString(strconv.Itoa(len(session)))
	_, _ = h.WriteString(session)
	_, _ = h.WriteString(text)
	return h.Sum64()
}

func (s *listIDShard) add(key uint64, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(at)
	if s.now == nil {
		s.now = map[uint64]struct{}{}
	}
	if len(s.now) < listIDMost {
		s.now[key] = struct{}{}
	}
}

func (s *listIDShard) has(key uint64, at time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(at)
	_, now := s.now[key]
	_, before := s.before[key]
	return now || before || len(s.now) == listIDMost || len(s.before) == listIDMost
}

// turn lets go of what is older than two lives, and of nothing that is younger
// than one.
func (s *listIDShard) turn(at time.Duration) {
	switch age := at - s.began; {
	case age >= 2*listIDLife:
		s.now, s.before, s.began = nil, nil, at
	case age >= listIDLife:
		s.now, s.before, s.began = nil, s.now, at
	}
}
