package xds_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/xds"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// The newest revision that a replica was told to be at.
func newest(updates []client.Update) (revision int64) {
	for _, u := range updates {
		revision = max(revision, u.Revision)
	}
	return revision
}

// A replica that has taken a part of a revision is not at it.
func TestRevisionIsThatOfAllTypes(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(1, []xds.Resource{server("a", 1), keys(1), gatewaySettings(1)}, nil); err != nil {
		t.Fatal(err)
	}
	r := c.follow(t, "one", c.dial(t))
	c.connected(t, "one")
	if err := c.applied(t, 1); err != nil {
		t.Fatal(err)
	}
	if started := r.take(); len(started) != len(xds.FleetTypes()) || newest(started[:len(started)-1]) != 0 || newest(started) != 1 {
		t.Errorf("the start came as %+v", started)
	}
	if err := c.SetFleet(2, []xds.Resource{server("a", 2), keys(2), gatewaySettings(2)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.applied(t, 2); err != nil {
		t.Fatal(err)
	}
	if changed := r.take(); len(changed) != 3 || newest(changed[:2]) != 0 || newest(changed) != 2 {
		t.Errorf("a change of three types came as %+v", changed)
	}
}

// refusals waits until they are as wanted.
func (c *control) refusals(t *testing.T, revision int64, want map[string]string) {
	t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		got, changed := c.Refusals(revision)
		if maps.Equal(got, want) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("refusals of %d: %v, want %v", revision, got, want)
		}
	}
}

// What a replica has refused as a whole keeps it behind, whatever it takes
// afterwards, until it has taken that too.
func TestRefusalHoldsTheRevisionBack(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(1, []xds.Resource{server("a", 1), keys(1)}, nil); err != nil {
		t.Fatal(err)
	}
	r := c.follow(t, "one", c.dial(t))
	c.connected(t, "one")
	if err := c.applied(t, 1); err != nil {
		t.Fatal(err)
	}
	r.setRefusal(errors.New("not these keys"))
	r.refuseOnly(xds.TypeKeys)
	r.take()
	if err := c.SetFleet(2, []xds.Resource{keys(2)}, nil); err != nil {
		t.Fatal(err)
	}
	c.refusals(t, 2, map[string]string{"one": "not these keys"})
	c.refusals(t, 3, map[string]string{}) // nobody has been asked yet
	if err := c.SetFleet(3, []xds.Resource{server("a", 3)}, nil); err != nil {
		t.Fatal(err)
	}
	c.refusals(t, 3, map[string]string{"one": "not these keys"})
	if got := r.take(); newest(got) != 0 || r.state()[xds.TypeServer+" a"] != "3" {
		t.Errorf("behind, it was told %+v", got)
	}
	r.setRefusal(nil)
	if err := c.SetFleet(4, []xds.Resource{server("a", 4)}, nil); err != nil {
		t.Fatal(err)
	}
	c.refusals(t, 2, map[string]string{})
	if err := c.applied(t, 4); err != nil {
		t.Fatal(err)
	}
	if got := r.take(); newest(got) != 4 || r.state()[xds.TypeKeys+" keys"] != "2" {
		t.Errorf("mended, it was told %+v", got)
	}
}

// One that was away is not at a revision before it has what came meanwhile.
func TestRefusalOverAReconnect(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(1, []xds.Resource{server("a", 1), keys(1)}, nil); err != nil {
		t.Fatal(err)
	}
	r := c.follow(t, "one", c.dial(t))
	c.connected(t, "one")
	if err := c.applied(t, 1); err != nil {
		t.Fatal(err)
	}
	r.setRefusal(errors.New("not these keys"))
	r.refuseOnly(xds.TypeKeys)
	if err := c.SetFleet(2, []xds.Resource{keys(2)}, nil); err != nil {
		t.Fatal(err)
	}
	c.refusals(t, 2, map[string]string{"one": "not these keys"})
	r.take()
	intruder := c.open(t, "one", xds.TypeServer, nil) // the replica connects again
	if _, err := intruder.Recv(); err != nil {
		t.Fatal(err)
	}
	c.refusals(t, 2, map[string]string{"one": "not these keys"})
	if got := r.take(); newest(got) != 0 {
		t.Errorf("behind, it was told %+v", got)
	}
}

// What is wrong with a part does not keep the rest from being current.
func TestRefusalOfAPart(t *testing.T) {
	c := newControl(t, xds.Config{})
	if err := c.SetFleet(1, []xds.Resource{server("a", 1), keys(1)}, nil); err != nil {
		t.Fatal(err)
	}
	r := c.follow(t, "one", c.dial(t))
	c.connected(t, "one")
	if err := c.applied(t, 1); err != nil {
		t.Fatal(err)
	}
	r.setRefusal(&client.PartError{Err: errors.New("no upstream in it")})
	if err := c.SetFleet(2, []xds.Resource{server("a", 2)}, nil); err != nil {
		t.Fatal(err)
	}
	refused, ok := errors.AsType[*xds.NotAppliedError](c.applied(t, 2))
	if !ok || refused.Detail != "no upstream in it" {
		t.Errorf("Applied says %v", refused)
	}
	c.refusals(t, 2, map[string]string{})
	if got := r.told(); got != 2 {
		t.Errorf("it was told to be at %d", got)
	}
}
