package xds

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
)

// envoyCaches hold what the Envoys of one place run, one linear cache per type.
// They serve Envoy's types only; another type is an error of the stream.
type envoyCaches struct {
	place  Place
	mux    *cachev3.MuxCache
	caches map[string]*cachev3.LinearCache

	envoys    int                          // connected; places.mu guards it
	published map[string]map[string]string // type, name, version; replicas.mu guards it
}

// envoyTypes in the order in which something new is made: what is referred to
// comes before what refers to it. Things are removed in the reverse order.
func envoyTypes() []string {
	return []string{resourcev3.SecretType, resourcev3.ClusterType, resourcev3.RouteType, resourcev3.ListenerType}
}

func newEnvoyCaches(at Place) *envoyCaches {
	e := &envoyCaches{
		place:  at,
		caches: map[string]*cachev3.LinearCache{},
		mux: &cachev3.MuxCache{
			Classify:      func(r *cachev3.Request) string { return r.GetTypeUrl() },
			ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
			Caches:        map[string]cachev3.Cache{},
		},
	}
	for _, typeURL := range envoyTypes() {
		cache := cachev3.NewLinearCache(typeURL)
		e.caches[typeURL], e.mux.Caches[typeURL] = cache, cache
	}
	return e
}

// change is what one publish alters in one place.
type change struct {
	caches   *envoyCaches
	wanted   map[string]map[string]types.Resource
	versions map[string]map[string]string
	before   map[string]map[string]string // versions of what was published until now
}

// plan translates a State for the place.
func (e *envoyCaches) plan(s State) (*change, error) {
	r, err := Translate(s, e.place)
	if err != nil {
		return nil, err
	}
	wanted := r.byType()
	versions, err := versionsOf(wanted)
	return &change{caches: e, wanted: wanted, versions: versions}, err
}

// send adds and replaces first, and removes last.
func (c *change) send() error {
	order := envoyTypes()
	for _, typeURL := range order {
		if err := c.caches.update(typeURL, c.wanted[typeURL], c.before[typeURL], c.versions[typeURL]); err != nil {
			return err
		}
	}
	slices.Reverse(order)
	for _, typeURL := range order {
		if err := c.caches.drop(typeURL, c.before[typeURL], c.versions[typeURL]); err != nil {
			return err
		}
	}
	return nil
}

func (e *envoyCaches) update(typeURL string, wanted map[string]types.Resource, before, versions map[string]string) error {
	changed := map[string]types.Resource{}
	for name, resource := range wanted {
		if before[name] != versions[name] {
			changed[name] = resource
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return e.caches[typeURL].UpdateResources(changed, nil)
}

func (e *envoyCaches) drop(typeURL string, before, versions map[string]string) error {
	var gone []string
	for name := range before {
		if _, still := versions[name]; !still {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return e.caches[typeURL].UpdateResources(nil, gone)
}

// versionsOf computes the versions that the caches will give to resources.
func versionsOf(all map[string]map[string]types.Resource) (map[string]map[string]string, error) {
	versions := map[string]map[string]string{}
	for typeURL, byName := range all {
		versions[typeURL] = map[string]string{}
		for name, resource := range byName {
			body, err := cachev3.MarshalResource(resource)
			if err != nil {
				return nil, fmt.Errorf("marshalling %s: %w", name, err)
			}
			versions[typeURL][name] = cachev3.HashResource(body)
		}
	}
	return versions, nil
}

// envoyWatch follows what one Envoy is sent, confirms and refuses.
type envoyWatch struct {
	replicas *replicas
	me       *replica
	log      *slog.Logger
}

// OnDeltaStreamOpen implements the callbacks of go-control-plane.
func (w *envoyWatch) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed implements the callbacks of go-control-plane.
func (w *envoyWatch) OnDeltaStreamClosed(int64, *corev3.Node) {}

// OnStreamDeltaResponse notes what is sent under which nonce.
func (w *envoyWatch) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
	sent := map[string]string{}
	for _, resource := range r.GetResources() {
		sent[resource.GetName()] = resource.GetVersion()
	}
	for _, name := range r.GetRemovedResources() {
		sent[name] = ""
	}
	w.replicas.edit(func() {
		t := w.me.acked(r.GetTypeUrl(), nil)
		t.inFlight[r.GetNonce()], t.awaited = sent, false
	})
}

// OnStreamDeltaRequest notes confirmations and refusals.
func (w *envoyWatch) OnStreamDeltaRequest(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	w.replicas.edit(func() {
		t := w.me.acked(r.GetTypeUrl(), r.GetInitialResourceVersions())
		sent, known := t.inFlight[r.GetResponseNonce()]
		if !known {
			return
		}
		delete(t.inFlight, r.GetResponseNonce())
		if refusal := r.GetErrorDetail(); refusal != nil {
			t.refused = strings.TrimSpace(refusal.GetMessage())
			maps.Copy(t.again, sent)
			w.log.Error("envoy refused a configuration", "type", r.GetTypeUrl(), "reason", t.refused)
			if w.me.replacedSince(r.GetTypeUrl(), t.again) {
				w.me.retry() // it was about an older state
			}
			return
		}
		t.take(sent)
	})
	return nil
}

// take notes a confirmation. A refusal stands until all of what was refused has
// been confirmed, or is sent again.
func (t *ackedBy) take(sent map[string]string) {
	for name, version := range sent {
		if t.has[name] = version; version == "" {
			delete(t.has, name)
		}
		delete(t.again, name)
	}
	if len(t.again) == 0 {
		t.refused = ""
	}
}

// replacedSince reports whether something that was sent is no longer what is
// published. Called with replicas.mu.
func (me *replica) replacedSince(typeURL string, sent map[string]string) bool {
	for name, version := range sent {
		if me.caches.published[typeURL][name] != version {
			return true
		}
	}
	return false
}

// retry forgets what an Envoy has refused, and has it sent again: the caches
// take a refused resource for delivered, though others of its message may be
// good and not applied either. In delta xDS one asks for a resource again by
// giving up its name; whoever subscribes by name then has to take it up again.
// A secret is not sent again as it was: Envoy 1.40 confirms the second copy of
// one that it has refused without looking at it. Called with replicas.mu.
func (me *replica) retry() {
	published := me.caches.published
	for typeURL, t := range me.types {
		names := slices.Sorted(maps.Keys(t.again))
		same := slices.ContainsFunc(names, func(name string) bool { return published[typeURL][name] == t.again[name] })
		stuck := len(me.again) > cap(me.again)-2
		if len(names) == 0 || stuck || typeURL == resourcev3.SecretType && same {
			continue
		}
		me.again <- &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: typeURL, ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: names,
		}
		if typeURL == resourcev3.RouteType || typeURL == resourcev3.SecretType {
			me.again <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}
		}
		t.refused, t.again, t.awaited = "", map[string]string{}, true
	}
}

// acked is the state of one type; a resumed stream begins with what Envoy has.
func (me *replica) acked(typeURL string, initial map[string]string) *ackedBy {
	t := me.types[typeURL]
	if t == nil {
		t = &ackedBy{
			has: map[string]string{}, again: map[string]string{},
			inFlight: map[string]map[string]string{},
		}
		maps.Copy(t.has, initial)
		me.types[typeURL] = t
	}
	return t
}
