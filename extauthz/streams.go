package extauthz

import (
	"sync"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// streams is the index of live streams by everything that can end one, so that
// cutting is a lookup.
type streams struct {
	mu    sync.Mutex // guards byKey
	byKey map[revocation.Key]map[*liveStream]struct{}
}

// liveStream is a light handle on one answer that Envoy streams.
type liveStream struct {
	keys  []revocation.Key // the first one is the credential
	end   func()           // tells Envoy to end it; once
	ended chan struct{}    // closed: Envoy has let go of it
	cut   bool             // counted as ended; streams.mu guards it
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
	return &streams{byKey: map[revocation.Key]map[*liveStream]struct{}{}}
}

// add registers a stream and says how many its credential has with it.
func (s *streams) add(end func(), keys ...revocation.Key) (*liveStream, int) {
	st := &liveStream{keys: keys, end: sync.OnceFunc(end), ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
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
	all := map[*liveStream]struct{}{}
	for _, set := range s.byKey {
		for st := range set {
			all[st] = struct{}{}
		}
	}
	return len(all)
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

// endEvery cuts all streams.
func (s *streams) endEvery() {
	s.mu.Lock()
	var found []*liveStream
	for _, set := range s.byKey {
		for st := range set {
			found = append(found, st)
		}
	}
	s.mu.Unlock()
	endAll(found)
}

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
