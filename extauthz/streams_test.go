package extauthz

import (
	"sync"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// A server's deletion reaches a replica twice, as an entry and as settings: each
// stream that it ends counts once, whichever came first.
func TestStreamsAreCountedOnce(t *testing.T) {
	s := newStreams()
	server := identity.NewServerID()
	const streams = 50
	for range streams {
		var st *liveStream
		ended := make(chan struct{})
		st, _ = s.add(func() { close(ended) }, opened{server: server}, tokenKey("t"), serverKey(server))
		go func() {
			<-ended
			s.remove(st)
		}()
	}
	var both sync.WaitGroup
	var counted [2]int64
	for i := range counted {
		both.Go(func() {
			for _, n := range s.end(tokenKey("t"), serverKey(server)) {
				counted[i] += n
			}
		})
	}
	both.Wait()
	if counted[0]+counted[1] != streams || s.total() != 0 {
		t.Errorf("counted %v of %d streams, %d left", counted, streams, s.total())
	}
}
