package xds_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/xds"
)

func TestFleetFollowsRevisions(t *testing.T) {
	c := newControl(t, xds.Config{})
	r := c.follow(t, "one", c.dial(t))
	c.connected(t, "one")
	if got := r.take(); len(got) > 0 {
		t.Fatalf("served before the first SetFleet: %v", got)
	}
	if err := c.SetFleet(7, []xds.Resource{server("a", 3), server("b", 7), keys(1), gatewaySettings(1)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.applied(t, 7); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		xds.TypeServer + " a": "3", xds.TypeServer + " b": "7", xds.TypeKeys + " keys": "1", xds.TypeGateway + " gateway": "1",
	}
	if got := r.state(); !maps.Equal(got, want) {
		t.Errorf("the replica has %v", got)
	}
	for updates := r.take(); len(updates) > 0; updates = updates[1:] {
		// A part of the revision is no revision.
		if u := updates[0]; u.Revision != 7 && (len(updates) == 1 || u.Revision != 0) {
			t.Errorf("update %+v, and %d after it, in revision 7", u, len(updates)-1)
		}
	}

	if err := c.SetFleet(8, []xds.Resource{server("b", 8)}, []xds.Name{{Type: xds.TypeServer, Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.applied(t, 8); err != nil {
		t.Fatal(err)
	}
	updates := r.take()
	if len(updates) != 1 || len(updates[0].Changed) != 1 || updates[0].Changed[0].Name != "b" ||
		len(updates[0].Removed) != 1 || updates[0].Removed[0] != "a" || updates[0].Revision != 8 {
		t.Errorf("one change came as %+v", updates)
	}

	if err := c.SetFleet(9, nil, nil); err != nil { // a revision that changes nothing here
		t.Fatal(err)
	}
	if err := c.applied(t, 9); err != nil {
		t.Fatal(err)
	}
	if got := c.Replicas(); len(got) != 1 || got[0].Node != "one" || got[0].Role != xds.RoleExtauthz || got[0].Revision != 9 {
		t.Errorf("replicas %+v", got)
	}
}

func TestFleetStartsEmpty(t *testing.T) {
	c := newControl(t, xds.Config{})
	r := c.follow(t, "one", c.dial(t))
	if err := c.SetFleet(1, nil, nil); err != nil {
		t.Fatal(err)
	}
	c.connected(t, "one")
	if err := c.applied(t, 1); err != nil {
		t.Fatal(err)
	}
	started := map[string]bool{}
	for _, u := range r.take() {
		started[u.Type] = u.Complete
	}
	if len(started) != len(xds.FleetTypes()) {
		t.Errorf("only %v are known to be empty", started)
	}
}

// TestFleetComesInBatches serves more than one message holds, and a resume
// after it that repeats nothing.
func TestFleetComesInBatches(t *testing.T) {
	const n = 3500
	c := newControl(t, xds.Config{})
	all := []xds.Resource{keys(1), gatewaySettings(1)}
	for i := range n {
		all = append(all, server(fmt.Sprintf("server-%d", i), 5))
	}
	if err := c.SetFleet(5, all, nil); err != nil {
		t.Fatal(err)
	}
	conn := c.dial(t)
	r := c.follow(t, "one", conn)
	c.connected(t, "one")
	if err := c.applied(t, 5); err != nil {
		t.Fatal(err)
	}
	complete := 0
	for _, u := range r.take() {
		if len(u.Changed) > 1000 {
			t.Errorf("%d resources in one message", len(u.Changed))
		}
		if u.Complete {
			complete++
		}
	}
	if len(r.state()) != n+2 || complete != len(xds.FleetTypes()) {
		t.Errorf("%d resources, %d complete updates", len(r.state()), complete)
	}
}

// TestFleetResumes drops the stream from the server's side, changes something,
// and counts what comes again.
func TestFleetResumes(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(5, []xds.Resource{server("a", 1), server("b", 2), keys(1), gatewaySettings(1)}, nil); err != nil {
		t.Fatal(err)
	}
	r := c.follow(t, "one", c.dial(t))
	c.connected(t, "one")
	if err := c.applied(t, 5); err != nil {
		t.Fatal(err)
	}
	r.take()
	intruder := c.open(t, "one", xds.TypeServer, nil) // a newer stream of the node: the first one ends
	if _, err := intruder.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetFleet(6, []xds.Resource{server("b", 6)}, []xds.Name{{Type: xds.TypeServer, Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if got := r.state(); len(got) == 3 && got[xds.TypeServer+" b"] == "6" {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("after the resume: %v", got)
		}
	}
	for _, u := range r.take() {
		for _, resource := range u.Changed {
			if resource.Name != "b" {
				t.Errorf("%s was sent again", resource.Name)
			}
		}
	}
}

// TestFleetRefusal holds that a refusal is an error of Applied, that the
// refused resources come again with the next change, and that it heals.
func TestFleetRefusal(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(1, []xds.Resource{keys(1), gatewaySettings(1)}, nil); err != nil {
		t.Fatal(err)
	}
	bad, good := c.follow(t, "bad", c.dial(t)), c.follow(t, "good", c.dial(t))
	c.connected(t, "bad")
	c.connected(t, "good")
	if err := c.applied(t, 1); err != nil {
		t.Fatal(err)
	}
	bad.setRefusal(errors.New("no upstream in it"))
	if err := c.SetFleet(2, []xds.Resource{server("a", 2)}, nil); err != nil {
		t.Fatal(err)
	}
	var refusal *xds.NotAppliedError
	if err := c.applied(t, 2); !errors.As(err, &refusal) || refusal.Node != "bad" || refusal.Detail != "no upstream in it" {
		t.Errorf("Applied says %v", err)
	}
	bad.setRefusal(nil)
	if err := c.SetFleet(3, []xds.Resource{server("b", 3)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.applied(t, 3); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(bad.state(), good.state()) || len(good.state()) != 4 {
		t.Errorf("bad has %v, good has %v", bad.state(), good.state())
	}
	for _, r := range c.Replicas() {
		if r.Error != "" || r.Revision != 3 {
			t.Errorf("%+v", r)
		}
	}
}

func TestAppliedNamesWhoIsMissing(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(1, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.applied(t, 1); err != nil {
		t.Errorf("nobody is connected: %v", err)
	}
	stream := c.open(t, "silent", xds.TypeServer, nil)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := c.Applied(ctx, 1)
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "waiting for extauthz silent: context deadline exceeded" {
		t.Errorf("Applied says %v", err)
	}
}

func TestSetFleetRefusesForeignTypes(t *testing.T) {
	c := newControl(t, xds.Config{})
	wrong := server("a", 1)
	wrong.Type = xds.TypeKeys
	unknown := xds.Name{Type: "type.googleapis.com/arbiter.v1.Header", Name: "x"}
	if err := c.SetFleet(1, []xds.Resource{wrong}, nil); err == nil {
		t.Error("a server passed for keys")
	}
	if err := c.SetFleet(1, nil, []xds.Name{unknown}); err == nil {
		t.Error("an unknown type passed")
	}
}

func TestServerRefuses(t *testing.T) {
	c := newControl(t, xds.Config{Allow: func(role xds.Role, node string) error {
		if role == xds.RoleExtauthz && node != "known" {
			return errors.New("not in the list")
		}
		return nil
	}})
	if err := c.SetFleet(1, nil, nil); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		node    string
		typeURL string
		names   []string
		want    codes.Code
	}{
		{"no node", "", xds.TypeServer, nil, codes.PermissionDenied},
		{"an unknown node", "unknown", xds.TypeServer, nil, codes.PermissionDenied},
		{"a single resource", "known", xds.TypeServer, []string{"a"}, codes.InvalidArgument},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.open(t, test.node, test.typeURL, test.names).Recv()
			if status.Code(err) != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	t.Run("state of the world", func(t *testing.T) {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.dial(t)).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
			t.Errorf("got %v", err)
		}
	})
	t.Run("fleet and envoy on one stream", func(t *testing.T) {
		stream := c.open(t, "known", xds.TypeServer, nil)
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	})
}
