package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Name names one resource of the fleet.
type Name struct {
	Type string // one of FleetTypes
	Name string
}

// Resource is one resource of the fleet.
type Resource struct {
	Name
	Body proto.Message
}

// fleet is what every extauthz runs, and the log of what changed. A stream
// follows the log with a cursor, so a change costs each replica O(1); all
// resources are looked at only when a stream begins.
type fleet struct {
	// mu guards everything below.
	mu        sync.Mutex
	ready     bool // the first SetFleet has come
	revision  int64
	resources map[string]map[string]*discoveryv3.Resource // by type and name
	log       []Name                                      // changes from number base on
	base      int64
	changed   chan struct{} // closed and replaced on every change
}

// keepLog is how many changes are kept at least. Who is further behind starts
// its stream anew, and resumes by versions.
const keepLog = 8192

func newFleet() *fleet {
	f := &fleet{resources: map[string]map[string]*discoveryv3.Resource{}, changed: make(chan struct{})}
	for _, typeURL := range FleetTypes() {
		f.resources[typeURL] = map[string]*discoveryv3.Resource{}
	}
	return f
}

// set takes one revision, as a whole or not at all.
func (f *fleet) set(revision int64, changed []Resource, removed []Name) error {
	wire := make([]*discoveryv3.Resource, len(changed))
	for i, r := range changed {
		body := new(anypb.Any)
		err := anypb.MarshalFrom(body, r.Body, proto.MarshalOptions{Deterministic: true})
		if err != nil {
			return fmt.Errorf("marshalling %s: %w", r.Name.Name, err)
		}
		if body.GetTypeUrl() != r.Type {
			return fmt.Errorf("%s is a %s, not a %s", r.Name.Name, body.GetTypeUrl(), r.Type)
		}
		wire[i] = &discoveryv3.Resource{Name: r.Name.Name, Version: versionOf(body), Resource: body}
	}
	for _, n := range append(namesOf(changed), removed...) {
		if !slices.Contains(FleetTypes(), n.Type) {
			return fmt.Errorf("%s has the unknown type %s", n.Name, n.Type)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range changed {
		f.resources[r.Type][r.Name.Name] = wire[i]
	}
	for _, n := range removed {
		delete(f.resources[n.Type], n.Name)
	}
	f.log = append(append(f.log, namesOf(changed)...), removed...)
	f.forget()
	f.ready, f.revision = true, revision
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

// versionOf names what a resource says, so that a replica that comes back to a
// control with other settings, or over another database, is told.
func versionOf(body *anypb.Any) string {
	sum := sha256.Sum256(body.GetValue())
	return hex.EncodeToString(sum[:8])
}

// forget drops the older half of a log that has become long. Called with mu.
func (f *fleet) forget() {
	if len(f.log) <= 2*keepLog {
		return
	}
	drop := len(f.log) - keepLog
	f.base += int64(drop)
	f.log = slices.Clone(f.log[drop:])
}

func namesOf(all []Resource) []Name {
	names := make([]Name, len(all))
	for i, r := range all {
		names[i] = r.Name
	}
	return names
}

// delta is a difference to what one replica has of one type.
type delta struct {
	typeURL string
	changed []*discoveryv3.Resource
	removed []string
}

// differences compares a type as a whole with the versions that a replica says
// it has. It returns the revision that the replica runs after it, and false
// while there is nothing to serve.
func (f *fleet) differences(typeURL string, has map[string]string) (delta, int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := delta{typeURL: typeURL}
	for name, r := range f.resources[typeURL] {
		if has[name] != r.GetVersion() {
			d.changed = append(d.changed, r)
		}
	}
	for name := range has {
		if f.resources[typeURL][name] == nil {
			d.removed = append(d.removed, name)
		}
	}
	return d, f.revision, f.ready
}

// end is the number of the next change.
func (f *fleet) end() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.base + int64(len(f.log))
}

// news is what happened from change number cursor on.
type news struct {
	names    []Name
	cursor   int64
	revision int64
	changed  <-chan struct{} // closed when there is more
	ready    bool
	gap      bool // the log no longer reaches back to the cursor
}

func (f *fleet) since(cursor int64) news {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := news{cursor: f.base + int64(len(f.log)), revision: f.revision, changed: f.changed, ready: f.ready}
	if cursor < f.base {
		n.gap = true
		return n
	}
	n.names = slices.Clone(f.log[cursor-f.base:])
	return n
}

// look reads resources as they are now, each once, grouped by type.
func (f *fleet) look(names map[Name]struct{}) []delta {
	f.mu.Lock()
	defer f.mu.Unlock()
	byType := map[string]*delta{}
	for n := range names {
		d := byType[n.Type]
		if d == nil {
			d = &delta{typeURL: n.Type}
			byType[n.Type] = d
		}
		if r := f.resources[n.Type][n.Name]; r != nil {
			d.changed = append(d.changed, r)
		} else {
			d.removed = append(d.removed, n.Name)
		}
	}
	var all []delta
	for _, typeURL := range FleetTypes() {
		if d := byType[typeURL]; d != nil {
			all = append(all, *d)
		}
	}
	return all
}
