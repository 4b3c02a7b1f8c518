package extauthz

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// streams is the index of live streams by everything that can end one, so that
// cutting is a lookup.
type streams struct {
	mu    sync.Mutex // guards the rest
	byKey map[revocation.Key]map[*liveStream]struct{}
	all   map[*liveStream]struct{}
}

// liveStream is a light handle on one answer that Envoy streams.
type liveStream struct {
	opened opened
	keys   []revocation.Key // the first one is the credential
	end    func()           // tells Envoy to end it; once
	ended  chan struct{}    // closed: Envoy has let go of it
	cut    bool             // counted as ended; streams.mu guards it
}

// opened is what a live stream was opened by, to be decided again.
type opened struct {
	server   identity.ServerID
	question string // "": by upkeep, which no policy is asked about
}

func tokenKey(id string) revocation.Key {
	return revocation.Key{Kind: revocation.KindAccessToken, Key: id}
}

func serverKey(id identity.ServerID) revocation.Key {
	return revocation.Key{Kind: revocation.KindServer, Key: id.String()}
}

// cutWait is how long a cut waits for Envoy to let go of the streams. Sending
// the cut has already ended them; a stream that stays longer belongs to an
// Envoy that does not answer, whose keepalive ends it.
const cutWait = 2 * time.Second

func newStreams() *streams {
	return &streams{byKey: map[revocation.Key]map[*liveStream]struct{}{}, all: map[*liveStream]struct{}{}}
}

// add registers a stream and says how many its credential has with it.
func (s *streams) add(end func(), by opened, keys ...revocation.Key) (*liveStream, int) {
	st := &liveStream{opened: by, keys: keys, end: sync.OnceFunc(end), ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[st] = struct{}{}
	for _, key := range keys {
		if s.byKey[key] == nil {
			s.byKey[key] = map[*liveStream]struct{}{}
		}
		s.byKey[key][st] = struct{}{}
	}
	return st, len(s.byKey[keys[0]])
}

// remove forgets a stream that has ended.
func (s *streams) remove(st *liveStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, st)
	for _, key := range st.keys {
		delete(s.byKey[key], st)
		if len(s.byKey[key]) == 0 {
			delete(s.byKey, key)
		}
	}
	close(st.ended)
}

// count is the number of live streams of one key.
func (s *streams) count(key revocation.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey[key])
}

// total is the number of live streams.
func (s *streams) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// every is all live streams.
func (s *streams) every() []*liveStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// of is the live streams of these keys.
func (s *streams) of(keys ...revocation.Key) []*liveStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*liveStream
	for _, key := range keys {
		found = slices.AppendSeq(found, maps.Keys(s.byKey[key]))
	}
	return found
}

// end cuts every stream of these keys, waits until Envoy has let go of them,
// and says how many each key had that nobody has counted yet: an entry and the
// settings may end the same stream.
func (s *streams) end(keys ...revocation.Key) []int64 {
	if len(keys) == 0 {
		return nil
	}
	s.mu.Lock()
	var found []*liveStream
	counts := make([]int64, len(keys))
	for i, key := range keys {
		for st := range s.byKey[key] {
			found = append(found, st)
			if !st.cut {
				st.cut = true
				counts[i]++
			}
		}
	}
	s.mu.Unlock()
	endAll(found)
	return counts
}

// endThese cuts streams, waits until Envoy has let go of them, and says how many
// of them nobody has counted yet.
func (s *streams) endThese(found []*liveStream) (counted int64) {
	s.mu.Lock()
	for _, st := range found {
		if !st.cut {
			st.cut = true
			counted++
		}
	}
	s.mu.Unlock()
	endAll(found)
	return counted
}

// endEvery cuts all streams.
func (s *streams) endEvery() { endAll(s.every()) }

func endAll(found []*liveStream) {
	for _, st := range found {
		st.end()
	}
	timer := time.NewTimer(cutWait)
	defer timer.Stop()
	for _, st := range found {
		select {
		case <-st.ended:
		case <-timer.C:
			return
		}
	}
}
