package xds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Replica is one connected Envoy or extauthz.
type Replica struct {
	Role     Role
	Node     string
	Since    time.Time
	Revision int64  // newest revision that an extauthz runs; 0 for an Envoy
	Current  bool   // an Envoy has confirmed all that is published
	Error    string // what it refused last, "" when nothing is refused now
	Place    Place  // of an Envoy
}

// NotAppliedError says which replica refused a configuration, and why.
type NotAppliedError struct {
	Role   Role
	Node   string
	Detail string // the replica's own words
}

func (e *NotAppliedError) Error() string {
	return fmt.Sprintf("%s %q refused the configuration: %s", e.Role, e.Node, e.Detail)
}

// replica is the live form of Replica. replicas.mu guards its changing fields.
type replica struct {
	role     Role
	node     string
	since    time.Time
	replaced chan struct{} // closed when a newer stream of the node arrives

	// Of an extauthz.
	revision  int64
	refused   string
	refusedAt int64 // newest revision that the refusal holds back
	behind    bool  // it runs what it had before, as a whole: no part of what was refused

	// Of an Envoy.
	caches *envoyCaches                            // of its place; nil of an extauthz
	types  map[string]*ackedBy                     // by type URL
	again  chan *discoveryv3.DeltaDiscoveryRequest // said in the Envoy's stead: retry
}

// ackedBy is what an Envoy has of one type.
type ackedBy struct {
	has      map[string]string            // name to version, as confirmed
	inFlight map[string]map[string]string // by nonce: name to version, "" for removed
	refused  string
	again    map[string]string // what was refused: name to version
	awaited  bool              // it was asked for again, and nothing has been sent since
}

// replicas knows who is connected and what they run.
type replicas struct {
	// mu guards everything below, the changing fields of each replica, and what
	// is published in each place.
	mu      sync.Mutex
	live    map[*replica]struct{}
	changed chan struct{} // closed and replaced on every change
}

func newReplicas() *replicas {
	return &replicas{live: map[*replica]struct{}{}, changed: make(chan struct{})}
}

// add lists a new stream. A node has one: an older one ends, so that nobody
// waits for a stream that is dead but not noticed yet.
func (r *replicas) add(role Role, node string, caches *envoyCaches) *replica {
	me := &replica{
		role: role, node: node, caches: caches, since: time.Now(),
		replaced: make(chan struct{}), types: map[string]*ackedBy{}, again: make(chan *discoveryv3.DeltaDiscoveryRequest, 16),
	}
	r.edit(func() {
		for other := range r.live {
			if other.role == role && other.node == node {
				close(other.replaced)
				delete(r.live, other)
			}
		}
		r.live[me] = struct{}{}
	})
	return me
}

func (r *replicas) remove(me *replica) {
	r.edit(func() { delete(r.live, me) })
}

// edit changes something under the lock and wakes who waits.
func (r *replicas) edit(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// current reports whether an Envoy has exactly what is published for its place.
// Called with mu.
func (r *replicas) current(me *replica) bool {
	for typeURL := range me.caches.published {
		if !r.has(me, typeURL) {
			return false
		}
	}
	return me.caches.published != nil
}

// has reports whether an Envoy has confirmed all of a type, and nothing else is
// on its way. Called with mu.
func (r *replicas) has(me *replica, typeURL string) bool {
	t := me.types[typeURL]
	return t != nil && !t.awaited && len(t.inFlight) == 0 && maps.Equal(t.has, me.caches.published[typeURL])
}

// Replicas lists who is connected, sorted by role and node.
func (s *Server) Replicas() []Replica {
	r := s.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Replica, 0, len(r.live))
	for me := range r.live {
		one := Replica{Role: me.role, Node: me.node, Since: me.since, Revision: me.revision, Error: me.refusal()}
		if me.role == RoleEnvoy {
			one.Current, one.Place = r.current(me), me.caches.place
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Replica) int {
		return strings.Compare(string(a.Role)+" "+a.Node, string(b.Role)+" "+b.Node)
	})
	return all
}

// refusal is what a replica has refused and has not taken since.
func (me *replica) refusal() string {
	for _, typeURL := range slices.Sorted(maps.Keys(me.types)) {
		if t := me.types[typeURL]; t.refused != "" {
			return t.refused
		}
	}
	return me.refused
}

// Applied waits until every connected Envoy has confirmed what SetEnvoy
// published last, and every connected extauthz runs revision. It returns a
// *NotAppliedError as soon as one of them has refused, and an error that wraps
// the context's and names who is missing when ctx ends first.
func (s *Server) Applied(ctx context.Context, revision int64) error {
	for {
		missing, changed, err := s.replicas.missing(revision)
		if err != nil || len(missing) == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", strings.Join(missing, ", "), ctx.Err())
		}
	}
}

// Refusals says which connected extauthz have refused a revision, or what came
// before it, and run the settings that they had: why, by node. The channel is
// closed when that may have changed.
func (s *Server) Refusals(revision int64) (by map[string]string, changed <-chan struct{}) {
	r := s.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	by = map[string]string{}
	for me := range r.live {
		if me.role == RoleExtauthz && me.behind && me.refusedAt >= revision {
			by[me.node] = me.refused
		}
	}
	return by, r.changed
}

func (r *replicas) missing(revision int64) ([]string, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for me := range r.live {
		if me.role == RoleEnvoy && r.current(me) || me.role == RoleExtauthz && me.revision >= revision {
			continue
		}
		if refusal := me.refusal(); refusal != "" && (me.role == RoleEnvoy || me.refusedAt >= revision) {
			return nil, nil, &NotAppliedError{Role: me.role, Node: me.node, Detail: refusal}
		}
		names = append(names, string(me.role)+" "+me.node)
	}
	slices.Sort(names)
	return names, r.changed, nil
}
