package journal

import (
	"errors"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// line is one line of the file:
//
//	{"database":"...","epoch":1,"seq":7,"revision":3,"kind":1,"key":"...","server":"..."}
//
// An entry of the revocation log, and how far the database was when it was
// noted. Without kind, key and server it is a position: the database was there.
type line struct {
	Database string          `json:"database"`
	Epoch    int64           `json:"epoch"`
	Seq      int64           `json:"seq"`
	Revision int64           `json:"revision"`
	Kind     revocation.Kind `json:"kind,omitzero"`
	Key      string          `json:"key,omitzero"`
	Server   string          `json:"server,omitzero"`
}

func positionLine(at store.Reached) line {
	return line{Database: at.Database, Epoch: at.Epoch, Seq: at.Seq, Revision: at.Revision}
}

func (l line) place() place { return place{l.Epoch, l.Seq} }

// begins is the place after which the line says everything.
func (l line) begins() place {
	if l.Kind == 0 {
		return l.place()
	}
	return place{l.Epoch, l.Seq - 1}
}

var errEntry = errors.New("an entry needs kind, key and server, a position none of them")

// entry reads what the line says was ended.
func (l line) entry() (revocation.Entry, error) {
	server, err := identity.ParseServerID(l.Server)
	if err != nil || l.Kind < 1 || l.Key == "" {
		return revocation.Entry{}, errEntry
	}
	return revocation.Entry{Seq: l.Seq, Kind: l.Kind, Key: l.Key, Server: server}, nil
}

// check refuses a line that no journal of this database has.
func (l line) check(database string) error {
	if l.Database != database {
		return errors.New("it belongs to another database")
	}
	if l.Epoch < 1 || l.Seq < 0 || l.Revision < 0 {
		return errors.New("a number is missing, or too small")
	}
	if l.Kind == 0 && l.Key == "" && l.Server == "" {
		return nil
	}
	_, err := l.entry()
	return err
}

// place is where in a database's life something was: epochs follow one
// another, and within one the entries do.
type place struct{ epoch, seq int64 }

func placeOf(at store.Reached) place { return place{at.Epoch, at.Seq} }

func (p place) after(q place) bool {
	return p.epoch > q.epoch || p.epoch == q.epoch && p.seq > q.seq
}

// count is what there is in the file.
type count struct {
	past
	lines, entries int
}

// take counts a line, or refuses it.
func (c *count) take(l line, database string) error {
	if err := l.check(database); err != nil {
		return err
	}
	c.lines++
	if l.Kind != 0 {
		c.entries++
	}
	return c.past.take(l)
}

// past is what the lines say together.
type past struct {
	seen store.Reached
	from place // everything that was ended after it is in a line
}

var errBack = errors.New("it goes back behind the line before it")

// take adds a line. A seq that was left out moves from: what it ended is not
// known, so what came before it is of no use alone.
func (p *past) take(l line) error {
	last, first := p.seen, p.seen.Database == ""
	if !first && (l.Epoch < last.Epoch || l.begins().seq < last.Seq) {
		return errBack
	}
	if first || l.begins().seq > last.Seq {
		p.from = l.begins()
	}
	p.seen = store.Reached{
		Position: revocation.Position{Database: l.Database, Epoch: l.Epoch, Seq: l.Seq},
		Revision: max(last.Revision, l.Revision),
	}
	return nil
}
