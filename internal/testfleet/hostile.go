package testfleet

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Hostile answers requests as no decent server would: each path is a behaviour.
type Hostile struct{ wire *wire }

// NewHostile serves until the test ends.
func NewHostile(t testing.TB, c Config) *Hostile {
	t.Helper()
	h := &Hostile{}
	h.wire = listen(t, c, func(c *wireConn) {
		for h.serve(c) {
		}
	})
	return h
}

// Addr is the "ip:port".
func (h *Hostile) Addr() string { return h.wire.addr() }

// URL is where every request meets the behaviour.
func (h *Hostile) URL(t testing.TB, behaviour string) string {
	t.Helper()
	return h.wire.origin() + known(t, behaviour)
}

// AfterOpening is where initialize is answered well, with a session, and only
// what comes after it meets the behaviour.
func (h *Hostile) AfterOpening(t testing.TB, behaviour string) string {
	t.Helper()
	return h.wire.origin() + "/after" + known(t, behaviour)
}

func known(t testing.TB, behaviour string) string {
	t.Helper()
	if behaviours()[behaviour] == nil {
		t.Fatalf("no hostile behaviour %q", behaviour)
	}
	return "/" + behaviour
}

// Behaviours are the names of all behaviours, sorted.
func Behaviours() []string { return slices.Sorted(maps.Keys(behaviours())) }

// serve answers one request and says whether the connection is still good: it
// is not after a behaviour.
func (h *Hostile) serve(c *wireConn) bool {
	r, err := c.read()
	if err != nil {
		return false
	}
	path := r.Target
	if name, opened := strings.CutPrefix(path, "/after/"); opened {
		if m := r.message(); m.Method == "initialize" || m.Method == "notifications/initialized" {
			return decent(c, r) == nil
		}
		path = "/" + name
	}
	behave := behaviours()[strings.TrimPrefix(path, "/")]
	if behave == nil {
		return c.send("%s", answer("404 Not Found", nil, "")) == nil
	}
	behave(c, r)
	return false
}
