package xds

import (
	"errors"
	"log/slog"
	"slices"
	"sync"

	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxPlaces bounds what connected Envoys can make the server keep.
const maxPlaces = 256

// places are where Envoys are connected now. All run the same State, each place
// in its own translation.
type places struct {
	replicas *replicas
	ready    chan struct{} // closed by the first publish

	// mu guards the rest. It is held while something is published: one at a
	// time, and nobody enters in between with what was published before.
	mu    sync.Mutex
	state *State // published last; nil before the first
	open  map[Place]*envoyCaches
}

func newPlaces(live *replicas) *places {
	return &places{replicas: live, ready: make(chan struct{}), open: map[Place]*envoyCaches{}}
}

// enter gives one more Envoy the caches of its place, made of the newest State
// when it is the first there.
func (p *places) enter(at Place) (*envoyCaches, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	caches := p.open[at]
	if caches == nil {
		if len(p.open) >= maxPlaces {
			return nil, status.Errorf(codes.ResourceExhausted, "Envoys are connected from %d places: no more", maxPlaces)
		}
		caches = newEnvoyCaches(at)
		if p.state != nil {
			if err := p.send(*p.state, caches); err != nil {
				return nil, status.Error(codes.Internal, err.Error())
			}
		}
		p.open[at] = caches
	}
	caches.envoys++
	return caches, nil
}

// leave forgets a place when its last Envoy is gone.
func (p *places) leave(caches *envoyCaches) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if caches.envoys--; caches.envoys == 0 {
		delete(p.open, caches.place)
	}
}

// publish sends a State to every place, or to none when it does not translate.
func (p *places) publish(s State) error {
	s.CAs = slices.Clone(s.CAs)
	if _, err := Translate(s, standIn); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*envoyCaches
	for _, caches := range p.open {
		all = append(all, caches)
	}
	if err := p.send(s, all...); err != nil {
		return err
	}
	first := p.state == nil
	p.state = &s
	if first {
		close(p.ready)
	}
	return nil
}

// send makes before it breaks, in each place. What is expected of every Envoy
// is known before anything is sent, so Applied cannot be satisfied by an older
// state. Called with mu.
func (p *places) send(s State, to ...*envoyCaches) error {
	var all []*change
	for _, caches := range to {
		c, err := caches.plan(s)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	p.replicas.edit(func() {
		for _, c := range all {
			c.before, c.caches.published = c.caches.published, c.versions
		}
	})
	var faults []error
	for _, c := range all {
		faults = append(faults, c.send())
	}
	p.replicas.edit(func() { // only now: what is sent again must be the new
		for me := range p.replicas.live {
			if slices.Contains(to, me.caches) {
				me.retry()
			}
		}
	})
	return errors.Join(faults...)
}

// serve runs one Envoy's stream.
func (p *places) serve(in *inbound, me *replica, log *slog.Logger) error {
	select {
	case <-p.ready:
	case <-in.replaced:
		return errReplaced
	case <-in.Context().Done():
		return in.Context().Err()
	}
	watch := &envoyWatch{replicas: p.replicas, me: me, log: log}
	return deltav3.NewServer(in.Context(), me.caches.mux, watch).DeltaStreamHandler(in, resourcev3.AnyType)
}
