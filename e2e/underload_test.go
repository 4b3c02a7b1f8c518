//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"
)

// carried is the part of an answer that says how what was ended was ended.
type carried struct {
	Replicas     int      `json:"replicas"`
	Confirmed    int      `json:"replicas_confirmed"`
	Missing      []string `json:"missing"`
	StreamsEnded int      `json:"streams_ended"`
	Milliseconds int      `json:"milliseconds"`
}

// answered is an answer of control, and when it had been read.
type answered struct {
	carried
	number int64 // what began later has a higher one
	at     time.Time
	took   time.Duration
}

// change makes a request to control and notes when the answer has been read.
func (f *fleet) change(t *testing.T, up *tally, method, path string, in any) answered {
	t.Helper()
	a, err := f.tryChange(t, up, method, path, in)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (f *fleet) tryChange(t *testing.T, up *tally, method, path string, in any) (answered, error) {
	t.Helper()
	var out struct {
		Revocation carried `json:"revocation"`
	}
	began := time.Now()
	_, err := f.api(t, method, path, in, &out)
	a := answered{carried: out.Revocation, number: up.mark(), at: time.Now()}
	a.took = a.at.Sub(began)
	return a, err
}

func (u *user) tokenPath() string { return "/servers/" + u.server + "/tokens/" + u.id }

// TestDeleteUnderLoad is the promise under load: a token with 256 streams and
// 75 requests a second is deleted. What began after the answer is refused on
// every pair, what the upstream said after it reaches nobody, and another token
// notices nothing.
func TestDeleteUnderLoad(t *testing.T) {
	for _, pairs := range []int{1, 4, 16} {
		t.Run(fmt.Sprintf("%d replicas", pairs), func(t *testing.T) {
			f, up := startFleet(t, pairs), newTally(t)
			server := f.addServer(t, up.url, up.url)
			bystander := f.addUser(t, up, server)
			bystander.openMany(t, 2*pairs)
			stop := bystander.work(t)
			const rounds = 8
			var took []time.Duration
			for round := range rounds {
				d := deleted{f.addUser(t, up, server), 256, round == 0}
				if a := d.round(t); !d.commandLine {
					took = append(took, a.took)
				}
			}
			t.Logf("delete: %d replicas, 256 streams: p50 %v, p99 %v, n=%d", pairs, quantile(took, 0.5), quantile(took, 0.99), len(took))
			bystander.burst(bystander.fresh(t))
			stop()
			bystander.undisturbed(t)
		})
	}
}

// deleted is one token of TestDeleteUnderLoad.
type deleted struct {
	*user
	most        int  // streams
	commandLine bool // deleted by the command, which takes longer to start
}

func (d *deleted) round(t *testing.T) answered {
	t.Helper()
	d.openMany(t, d.most)
	fresh := d.fresh(t)
	stop := d.work(t)
	defer stop()
	eventually(t, 20*time.Second, "every pair answers", func() bool { return d.everyPair(0, math.MaxInt64, http.StatusOK) })
	a := d.delete(t)
	d.burst(fresh)
	d.cut(t, a)
	eventually(t, 20*time.Second, "every pair has been asked again", func() bool {
		return len(d.after(a.number)) >= 40 && d.everyPair(a.number, math.MaxInt64, http.StatusUnauthorized)
	})
	stop()
	d.refused(t, a.number, http.StatusUnauthorized, -31401)
	if rest := others(d.statuses(0, a.number), http.StatusOK, http.StatusUnauthorized); len(rest) > 0 {
		t.Errorf("before the answer: statuses %v", rest)
	}
	if pairs := len(d.fleet.pairs); a.Replicas != pairs || a.Confirmed != pairs || len(a.Missing) != 0 || a.StreamsEnded != d.most {
		t.Errorf("the answer says %+v; %d pairs, %d streams", a.carried, pairs, d.most)
	}
	return a
}

func (d *deleted) delete(t *testing.T) answered {
	t.Helper()
	if !d.commandLine {
		return d.fleet.change(t, d.up, http.MethodDelete, d.tokenPath(), nil)
	}
	began := time.Now()
	out, err := d.fleet.cli(t, "", "token", "delete", d.server, d.id, "--json")
	a := answered{number: d.up.mark(), at: time.Now()}
	a.took = a.at.Sub(began)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &struct {
		Revocation *carried `json:"revocation"`
	}{&a.carried}); err != nil {
		t.Fatal(err)
	}
	return a
}

// cut wants every stream of the user's to have ended by an answer: its client
// sees that soon, and sees nothing that the upstream said later.
func (u *user) cut(t *testing.T, a answered) {
	t.Helper()
	eventually(t, 5*time.Second, "all streams end", func() bool { return u.live() == 0 })
	var last time.Duration
	late, whole := 0, 0
	for _, s := range u.opened() {
		last = max(last, s.at.Sub(a.at))
		if s.newest.Load() > a.number {
			late++
		}
		if s.whole {
			whole++
		}
	}
	t.Logf("answered after %v: %+v; the last stream ended %v later", a.took, a.carried, last)
	if late > 0 || whole > 0 {
		t.Errorf("%d streams brought what was said after the answer, %d ended as if complete", late, whole)
	}
}

// refused wants everything that began after a number to be refused with this
// status and code, and nothing of it to have reached the upstream.
func (u *user) refused(t *testing.T, after int64, status, code int) {
	t.Helper()
	bad := map[[3]int]int{}
	for _, a := range u.after(after) {
		if a.status != status || a.code != code {
			bad[[3]int{a.pair + 1, a.status, a.code}]++
		}
	}
	if len(bad) > 0 {
		t.Errorf("after the answer (pair, status, code): %v", bad)
	}
	u.unseen(t, after)
}

// unseen wants no request that began after a number to have reached the upstream.
func (u *user) unseen(t *testing.T, after int64) {
	t.Helper()
	if newest := u.up.newestOf(u.name); newest > after {
		t.Errorf("the upstream got request %d, and the answer was %d", newest, after)
	}
}

// undisturbed wants all streams to live and all calls to have been allowed.
func (u *user) undisturbed(t *testing.T) {
	t.Helper()
	now, opened := u.up.order.Load(), u.opened()
	if live := u.live(); live != len(opened) {
		t.Errorf("%d of %d streams of another token live", live, len(opened))
	}
	eventually(t, 10*time.Second, "the streams of another token go on", func() bool {
		return !slices.ContainsFunc(opened, func(s *stream) bool { return s.newest.Load() <= now })
	})
	count := u.statuses(0, math.MaxInt64)
	if rest := others(count, http.StatusOK); len(rest) > 0 || count[http.StatusOK] == 0 {
		t.Errorf("another token's calls: %v", count)
	}
}

// everyPair reports whether each pair has given this status to a request on an
// open connection and to one on a new one, between two numbers.
func (u *user) everyPair(after, upTo int64, status int) bool {
	found := map[[2]any]bool{}
	for _, a := range u.outcomes() {
		if a.began > after && a.began <= upTo && a.status == status {
			found[[2]any{a.pair, a.reused}] = true
		}
	}
	return len(found) == 2*len(u.clients)
}

// quantile is the nearest-rank one.
func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1].Round(10 * time.Microsecond)
}
