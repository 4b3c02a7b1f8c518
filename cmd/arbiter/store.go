package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/arbiter-gateway/arbiter/internal/journal"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

type storeCmd struct {
	AcceptRestore acceptRestoreCmd `cmd:"" help:"Make a database usable that was put back to an older state. Arbiter must be stopped."`
}

type acceptRestoreCmd struct {
	End string `enum:"lost,all,none" default:"lost" help:"What to end: what was deleted after the backup (lost), that and every access token (all), nothing (none)."`
}

// What acceptRestoreCmd.End can be.
const (
	endLost = "lost"
	endAll  = "all"
	endNone = "none"
)

// accepted is what accept-restore --json prints.
type accepted struct {
	Database       string `json:"database"`
	Restored       point  `json:"restored"` // where the database was
	Seen           point  `json:"seen"`     // where it had been before it was put back
	Now            point  `json:"now"`
	Lost           losses `json:"lost"`
	TokensEnded    int64  `json:"tokens_ended"`
	ServersDeleted int64  `json:"servers_deleted"`
}

// point is how far a database is.
type point struct {
	Epoch    int64 `json:"epoch"`
	Seq      int64 `json:"seq"`
	Revision int64 `json:"revision"`
}

// losses is what a restored database does not know any more.
type losses struct {
	Complete    bool  `json:"complete"`    // false: there may be more revocations than these
	Revocations int64 `json:"revocations"` // deleted tokens and servers
	Settings    int64 `json:"settings_changes"`
}

func pointOf(at store.Reached) point { return point{at.Epoch, at.Seq, at.Revision} }

// Run accepts the database in the data directory. Nothing else may use it.
func (c *acceptRestoreCmd) Run(p *program) error {
	at, err := p.openStopped()
	if err != nil {
		return err
	}
	defer at.close()
	now, err := at.store.Reached(p.ctx)
	if err != nil {
		return err
	}
	missing, complete, err := at.past.Missing(now)
	if err != nil {
		return err
	}
	seen := at.past.Seen()
	lost := lossesOf(seen, now, missing, complete)
	if err := c.check(seen, now, lost); err != nil {
		return err
	}
	ended, err := at.store.AcceptRestore(p.ctx, c.restore(seen, now, missing))
	if err != nil {
		return err
	}
	if err := at.past.Follow(p.ctx, at.store); err != nil {
		return fmt.Errorf("the database is accepted, and control will note it when it starts: %w", err)
	}
	return c.print(p, accepted{
		Database: now.Database, Restored: pointOf(now), Seen: pointOf(seen), Now: pointOf(ended.Now),
		Lost: lost, TokensEnded: ended.Tokens, ServersDeleted: ended.Servers,
	})
}

// stopped is what control works with, while no control runs.
type stopped struct {
	store   *store.Store
	past    *journal.Journal
	closers []func()
}

func (s *stopped) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

// openStopped opens the database and its journal, and keeps every control out
// until close. It makes neither a data directory nor a database.
func (p *program) openStopped() (*stopped, error) {
	_, err := os.Stat(p.file(databaseFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no database at %s: put it back first", p.file(databaseFile))
	case err != nil:
		return nil, err
	}
	s := &stopped{}
	if err := s.open(p); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stopped) open(p *program) error {
	release, err := p.lock(lockFile)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, release)
	key, err := p.storeKey()
	if err != nil {
		return err
	}
	s.store, err = store.Open(p.ctx, store.Config{Path: p.file(databaseFile), Key: key, Now: p.now})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() {
		if err := s.store.Close(); err != nil {
			p.note("closing the store: %v", err)
		}
	})
	now, err := s.store.Reached(p.ctx)
	if err != nil {
		return err
	}
	if s.past, err = journal.Open(p.data, now.Database); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.past.Close() }) // everything in it is on the disk
	return nil
}

// lossesOf compares what was seen with what is there. Settings are counted by
// revisions, some of which an earlier accept-restore may have left out.
func lossesOf(seen, now store.Reached, missing []revocation.Entry, complete bool) losses {
	lost := losses{Complete: complete, Revocations: int64(len(missing)), Settings: max(0, seen.Revision-now.Revision)}
	if !complete {
		lost.Revocations = max(lost.Revocations, seen.Seq-now.Seq)
	}
	return lost
}

// check refuses what there is no reason for, and what cannot be done exactly.
func (c *acceptRestoreCmd) check(seen, now store.Reached, lost losses) error {
	choose := "choose --end=all (every access token ends) or --end=none (what was deleted is valid again)"
	switch {
	case seen == (store.Reached{}) && c.End == endLost:
		return errors.New("this data directory never saw this database, so what it lacks is not known; if it was put back to an older state, " + choose)
	case seen == (store.Reached{}):
		return nil
	case journal.Restored(seen, now) == nil:
		return fmt.Errorf("nothing was restored: the database is at %s, and was last seen at %s", journal.Describe(now), journal.Describe(seen))
	case c.End == endLost && !lost.Complete:
		return fmt.Errorf("at least %d revocations are lost, and the journal does not have all of them: %s", lost.Revocations, choose)
	}
	return nil
}

func (c *acceptRestoreCmd) restore(seen, now store.Reached, missing []revocation.Entry) store.Restore {
	if seen == (store.Reached{}) {
		seen = now // nothing is known: the epoch alone tells it from what was before
	}
	out := store.Restore{Seen: seen, All: c.End == endAll}
	if c.End != endNone {
		out.End = missing
	}
	return out
}

// print says what was lost and what was done, and what a person has to look at.
func (c *acceptRestoreCmd) print(p *program, done accepted) error {
	if c.End == endNone {
		p.note("tokens and servers that were deleted after the backup are valid again")
	}
	p.note("look at `arbiter server list` after the start: changes since the backup are gone, a server that was disabled may be enabled again")
	if p.json {
		return p.printJSON(done)
	}
	seen, revocations, settings := "not known", "not known", "not known"
	if done.Seen != (point{}) {
		seen = done.Seen.String()
		revocations = strconv.FormatInt(done.Lost.Revocations, 10)
		settings = "up to " + strconv.FormatInt(done.Lost.Settings, 10)
		if !done.Lost.Complete {
			revocations = "at least " + revocations
		}
	}
	return p.printTable([][]string{
		{"database", done.Database},
		{"was put back to", done.Restored.String()},
		{"had been at", seen},
		{"is now at", done.Now.String()},
		{"lost revocations", revocations},
		{"lost changes of settings", settings},
		{"access tokens ended", strconv.FormatInt(done.TokensEnded, 10)},
		{"servers deleted", strconv.FormatInt(done.ServersDeleted, 10)},
	})
}

func (at point) String() string {
	return journal.Describe(store.Reached{Position: revocation.Position{Epoch: at.Epoch, Seq: at.Seq}, Revision: at.Revision})
}
