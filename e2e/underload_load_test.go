//go:build e2e

package e2e

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// work is what goes on while things happen: 50 requests a second in sum on 20
// connections, half of them HTTP/2, spread over the pairs; and beside them 25
// more, each on a connection of its own.
func (u *user) work(t *testing.T) (stop func()) {
	t.Helper()
	const connections, every, fresh = 20, 400 * time.Millisecond, 40 * time.Millisecond
	end := make(chan struct{})
	var workers sync.WaitGroup
	repeat := func(first, every time.Duration, ask func(n int)) {
		workers.Go(func() {
			timer := time.NewTimer(first)
			defer timer.Stop()
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				case <-timer.C:
					timer.Reset(every)
					ask(n)
				}
			}
		})
	}
	for i := range connections {
		pair := i % len(u.clients)
		client := &http.Client{Transport: u.fleet.pairs[pair].transport(t, (i+i/len(u.clients))%2 == 0)}
		repeat(time.Duration(i)*every/connections, every, func(n int) { u.ask(client, pair, paths[n%2]) })
	}
	clients := u.fresh(t)
	repeat(0, fresh, func(n int) {
		pair := n % len(clients)
		u.ask(clients[pair], pair, paths[n/len(clients)%2])
	})
	return sync.OnceFunc(func() {
		close(end)
		workers.Wait()
	})
}

var paths = []string{"/rpc", "/mcp"}

// fresh are clients that make a connection for each request.
func (u *user) fresh(t *testing.T) (clients []*http.Client) {
	t.Helper()
	for _, p := range u.fleet.pairs {
		tr := p.transport(t, false)
		tr.DisableKeepAlives = true
		clients = append(clients, &http.Client{Transport: tr})
	}
	return clients
}

// burst asks every pair at once, on the connection of its streams and on a new
// one, on both paths.
func (u *user) burst(fresh []*http.Client) {
	var workers sync.WaitGroup
	for pair := range u.clients {
		for _, path := range paths {
			workers.Go(func() { u.ask(u.clients[pair], pair, path) })
			workers.Go(func() { u.ask(fresh[pair], pair, path) })
		}
	}
	workers.Wait()
}

// hammer asks one pair from n goroutines, half of them on new connections,
// without waiting for anything but the answers and a moment.
func (u *user) hammer(t *testing.T, pair, n int) (stop func()) {
	t.Helper()
	end, fresh := make(chan struct{}), u.fresh(t)
	var workers sync.WaitGroup
	for i := range n {
		client := &http.Client{Transport: u.fleet.pairs[pair].transport(t, i%4 == 0)}
		if i%2 == 1 {
			client = fresh[pair]
		}
		workers.Go(func() {
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for {
				u.ask(client, pair, paths[i/2%2])
				select {
				case <-end:
					return
				case <-ticker.C:
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(end)
		workers.Wait()
	})
}

func (u *user) opened() []*stream {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.streams)
}

func (u *user) outcomes() []asked {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.asked)
}

// statuses counts the outcomes of requests that began after a number, and up to
// another one.
func (u *user) statuses(after, upTo int64) map[int]int {
	count := map[int]int{}
	for _, a := range u.outcomes() {
		if a.began > after && a.began <= upTo {
			count[a.status]++
		}
	}
	return count
}

// others are the statuses that are not listed.
func others(count map[int]int, listed ...int) map[int]int {
	rest := maps.Clone(count)
	for _, status := range listed {
		delete(rest, status)
	}
	return rest
}

// after are the outcomes of requests that began after a number.
func (u *user) after(number int64) []asked {
	return slices.DeleteFunc(u.outcomes(), func(a asked) bool { return a.began <= number })
}

// live counts the streams that have not ended.
func (u *user) live() (n int) {
	for _, s := range u.opened() {
		if s.lives() {
			n++
		}
	}
	return n
}
