//go:build e2e

package e2e

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestDisableAndUpdateUnderLoad takes rights away by settings, on four pairs
// under load: what began after the answer is decided by the new ones.
func TestDisableAndUpdateUnderLoad(t *testing.T) {
	f := startFleet(t, 4)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *settings)
	}{
		{"disabled", disabled},
		{"an origin is not allowed any more", originTaken},
		{"an era is not allowed any more", eraTaken},
		{"the upstream is another one", upstreamMoved},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &settings{fleet: f, up: newTally(t)}
			s.server = f.addServer(t, s.up.url, s.up.url, "--origin", allowedOrigin)
			other := f.addServer(t, s.up.url, s.up.url)
			bystander := f.addUser(t, s.up, other)
			bystander.openMany(t, 8)
			stop := bystander.work(t)
			defer stop()
			s.user = f.addUser(t, s.up, s.server)
			test.run(t, s)
			bystander.burst(bystander.fresh(t))
			stop()
			bystander.undisturbed(t)
		})
	}
}

const allowedOrigin = "https://app.example"

// settings are those of a server that somebody uses.
type settings struct {
	*fleet
	up     *tally
	server string
	user   *user
}

// underWork has the user ask until every pair has answered, makes the change, and
// has the user ask on until every pair has been asked at length again.
func (s *settings) underWork(t *testing.T, method, path string, in any) answered {
	t.Helper()
	fresh := s.user.fresh(t)
	stop := s.user.work(t)
	defer stop()
	eventually(t, 20*time.Second, "every pair answers", func() bool { return s.user.everyPair(0, math.MaxInt64, http.StatusOK) })
	a := s.change(t, s.up, method, "/servers/"+s.server+path, in)
	s.user.burst(fresh)
	asked := func() bool {
		pairs := map[[2]any]bool{}
		after := s.user.after(a.number)
		for _, o := range after {
			pairs[[2]any{o.pair, o.reused}] = true
		}
		return len(after) > 100 && len(pairs) == 2*len(s.pairs)
	}
	eventually(t, 20*time.Second, "every pair has been asked again", asked)
	stop()
	if a.Replicas != len(s.pairs) || a.Confirmed != len(s.pairs) || len(a.Missing) != 0 {
		t.Errorf("the answer says %+v", a.carried)
	}
	return a
}

// disabled: all streams of all its tokens end with the answer, which counts
// them, while new ones are being opened all the time.
func disabled(t *testing.T, s *settings) {
	second := s.addUser(t, s.up, s.server)
	s.user.openMany(t, 64)
	second.openMany(t, 64)
	const openers = 4
	end := make(chan struct{})
	var opening sync.WaitGroup
	for pair := range openers {
		opening.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(20 * time.Millisecond):
					_ = second.open(second.clients[pair], pair, http.MethodPost) // refused in the end
				}
			}
		})
	}
	a := s.underWork(t, http.MethodPost, "/disable", nil)
	close(end)
	opening.Wait()
	s.user.cut(t, a)
	second.cut(t, a)
	second.unseen(t, a.number)
	s.user.refused(t, a.number, http.StatusForbidden, -31403)
	opened := len(s.user.opened()) + len(second.opened())
	if opened <= 128 || a.StreamsEnded < opened || a.StreamsEnded > opened+openers {
		t.Errorf("%d streams were opened, and the answer counts %d", opened, a.StreamsEnded)
	}
}

func originTaken(t *testing.T, s *settings) {
	s.user.origin = allowedOrigin
	a := s.underWork(t, http.MethodPatch, "", map[string]any{"allowed_origins": []string{}})
	s.user.refused(t, a.number, http.StatusForbidden, -31403)
}

// eraTaken: /rpc has no eras and goes on; on /mcp the session is of an era that
// is not spoken here any more.
func eraTaken(t *testing.T, s *settings) {
	a := s.underWork(t, http.MethodPatch, "", map[string]any{"eras": []string{"modern"}})
	count := map[[2]int]int{}
	for _, o := range s.user.after(a.number) {
		count[[2]int{o.status, o.code}]++
	}
	want := [][2]int{{http.StatusOK, 0}, {http.StatusBadRequest, -32022}}
	if got := slices.SortedFunc(maps.Keys(count), func(x, y [2]int) int { return x[0] - y[0] }); !slices.Equal(got, want) {
		t.Errorf("after the answer (status, code): %v", count)
	}
}

// upstreamMoved: nothing that began after the answer reaches the old upstream.
func upstreamMoved(t *testing.T, s *settings) {
	place := newTally(t)
	a := s.underWork(t, http.MethodPatch, "", map[string]any{"rpc": place.url, "mcp": place.url})
	s.user.unseen(t, a.number)
	if place.newestOf(s.user.name) < a.number {
		t.Error("nothing reached the new upstream")
	}
	if rest := others(s.user.statuses(0, math.MaxInt64), http.StatusOK); len(rest) > 0 {
		t.Errorf("statuses %v", rest)
	}
}
