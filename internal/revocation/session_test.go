package revocation

import (
	"errors"
	"testing"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

func TestSettingsAreConfirmedOnce(t *testing.T) {
	e := newEnd(t, Position{})
	server := Key{KindServer, "s"}
	e.Settings(3, map[Key]int64{server: 2})
	if err := e.session.settings(); err != nil || len(e.sent) != 1 {
		t.Errorf("confirmed before there is a set: %v, %v", e.sent, err)
	}
	e.hear(t, full(1))
	if c := e.sent[1].GetConfirm(); c.GetRevision() != 3 || len(c.GetEnded()) != 1 || c.GetEnded()[0].GetStreams() != 2 {
		t.Errorf("confirmed %v", c)
	}
	e.Settings(4, nil)
	if err := e.session.settings(); err != nil {
		t.Fatal(err)
	}
	if c := e.sent[len(e.sent)-2].GetConfirm(); c.GetRevision() != 4 || len(c.GetEnded()) != 0 {
		t.Errorf("confirmed %v, want the streams once", c)
	}
	if e.sent[len(e.sent)-1].GetPing() == nil {
		t.Error("without a lease, new settings are no reason to ask for one")
	}
}

func TestBrokenStreamEndsTheSession(t *testing.T) {
	e := newEnd(t, Position{})
	e.breaks = errors.New("broken")
	if err := e.session.heard(toReplica(full(1, "one"))); !errors.Is(err, e.breaks) {
		t.Errorf("confirming: %v", err)
	}
	if !e.Known().Has(key("one").Hash()) {
		t.Error("an entry that cannot be confirmed is not applied")
	}
	if err := e.session.settings(); err != nil {
		t.Errorf("before the set is confirmed: %v", err)
	}
	if _, err := e.open(func(*pb.FromReplica) error { return e.breaks }); !errors.Is(err, e.breaks) {
		t.Errorf("hello: %v", err)
	}
}
