package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// KeptTools is how many tools of one server are remembered. Those beyond are
// not, and count as changed.
const KeptTools = 2000

// ToolHash is the SHA-256 of a tool's definition.
type ToolHash [32]byte

// String is lower-case hexadecimal.
func (h ToolHash) String() string { return hexOf(token.Digest(h)) }

// Tool is a tool as its server listed it.
type Tool struct {
	Name      string
	Approved  ToolHash  // the first one listed, or the one approved since
	Seen      ToolHash  // the last one listed
	FirstAt   time.Time // when it was first listed
	ChangedAt time.Time // since when Seen differs; zero: it does not
}

// Changed reports a definition that waits for approval.
func (t Tool) Changed() bool { return t.Seen != t.Approved }

// SeenTools is what became of one list.
type SeenTools struct {
	Changed []string // differ from what is approved; sorted
	New     []string // of those, or beside them, what nobody had noticed before; sorted
}

// SeeTools compares what a server lists with what is remembered of it, and
// remembers what is new: a tool that was never listed is approved, one that
// differs is changed until ApproveTools, or until it is listed as it was. A
// change is a revision of the server; a server that does not exist remembers
// nothing.
func (s *Store) SeeTools(ctx context.Context, server identity.ServerID, listed map[string]ToolHash) (SeenTools, error) {
	known, err := s.Tools(ctx, server)
	if err != nil {
		return SeenTools{}, err
	}
	if seen, same := compare(known, listed); same {
		return seen, nil
	}
	var seen SeenTools
	err = s.write(ctx, "noting tools", func(tx conn) error {
		if _, err := s.revise(tx, ChangeServer, server.String()); err != nil {
			return err
		}
		if known, err = toolsOf(tx, server); err != nil {
			return err
		}
		seen, _ = compare(known, listed)
		return s.noteTools(tx, server, known, listed)
	})
	if err == nil {
		s.announce()
	}
	return seen, err
}

// compare says what a list means, and whether it changes nothing.
func compare(known []Tool, listed map[string]ToolHash) (seen SeenTools, same bool) {
	byName := make(map[string]Tool, len(known))
	for _, tool := range known {
		byName[tool.Name] = tool
	}
	same, room := true, KeptTools-len(known)
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		hash := listed[name]
		tool, remembered := byName[name]
		switch {
		case !remembered && room > 0:
			room, same = room-1, false
		case !remembered:
			seen.Changed = append(seen.Changed, name)
			continue
		case tool.Seen != hash:
			same = false
			if hash != tool.Approved {
				seen.New = append(seen.New, name)
			}
		}
		if remembered && hash != tool.Approved {
			seen.Changed = append(seen.Changed, name)
		}
	}
	return seen, same
}

// noteTools writes what compare found, in the same order: that of names.
func (s *Store) noteTools(tx conn, server identity.ServerID, known []Tool, listed map[string]ToolHash) error {
	room, now := KeptTools-len(known), micros(s.now())
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		hash := listed[name].String()
		if i := slices.IndexFunc(known, func(t Tool) bool { return t.Name == name }); i >= 0 {
			if known[i].Seen == listed[name] {
				continue
			}
			_, err := tx.exec(`UPDATE tools SET seen = $1, changed_at = CASE WHEN approved = $1 THEN 0 ELSE $2 END
				WHERE server_id = $3 AND name = $4`, hash, now, server.String(), name)
			if err != nil {
				return err
			}
			continue
		}
		if room == 0 {
			continue
		}
		room--
		_, err := tx.exec(`INSERT INTO tools (server_id, name, approved, seen, first_at, changed_at)
			SELECT id, $2, $3, $3, $4, 0 FROM servers WHERE id = $1`, server.String(), name, hash, now)
		if err != nil {
			return err
		}
	}
	return nil
}

// Tools lists what is remembered of a server, by name.
func (s *Store) Tools(ctx context.Context, server identity.ServerID) ([]Tool, error) {
	out, err := toolsOf(s.read(ctx), server)
	if err != nil {
		return nil, failed("reading tools", err)
	}
	return out, nil
}

// ChangedTools are the names of those that wait for approval, sorted.
func (s *Store) ChangedTools(ctx context.Context, server identity.ServerID) ([]string, error) {
	var out []string
	err := s.read(ctx).rows(func(row scan) error {
		var name string
		err := row(&name)
		out = append(out, name)
		return err
	}, `SELECT name FROM tools WHERE server_id = $1 AND changed_at > 0 ORDER BY name`, server.String())
	if err != nil {
		return nil, failed("reading changed tools", err)
	}
	return out, nil
}

// WaitingTools is how many definitions of all servers wait for approval.
func (s *Store) WaitingTools(ctx context.Context) (n int64, err error) {
	if err = s.read(ctx).row(`SELECT COUNT(*) FROM tools WHERE changed_at > 0`)(&n); err != nil {
		return 0, failed("counting changed tools", err)
	}
	return n, nil
}

// ApproveTools approves the definitions as they were last listed, of these
// names or, without any, of all, and says how many had changed. ErrNotFound: a
// name is not remembered, and nothing was approved.
func (s *Store) ApproveTools(ctx context.Context, server identity.ServerID, names []string) (approved, revision int64, err error) {
	err = s.write(ctx, "approving tools", func(tx conn) error {
		if revision, err = s.revise(tx, ChangeServer, server.String()); err != nil {
			return err
		}
		known, err := toolsOf(tx, server)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.ContainsFunc(known, func(t Tool) bool { return t.Name == name }) {
				return ErrNotFound
			}
		}
		for _, tool := range known {
			if !tool.Changed() || len(names) > 0 && !slices.Contains(names, tool.Name) {
				continue
			}
			approved++
			_, err := tx.exec(`UPDATE tools SET approved = seen, changed_at = 0 WHERE server_id = $1 AND name = $2`, server.String(), tool.Name)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	s.announce()
	return approved, revision, nil
}

func toolsOf(c conn, server identity.ServerID) ([]Tool, error) {
	var out []Tool
	err := c.rows(func(row scan) error {
		var t Tool
		var approved, seen string
		var first, changed int64
		if err := row(&t.Name, &approved, &seen, &first, &changed); err != nil {
			return err
		}
		a, errA := parseDigest(approved)
		b, errB := parseDigest(seen)
		if errA != nil || errB != nil {
			return fault{errDigest}
		}
		t.Approved, t.Seen, t.FirstAt, t.ChangedAt = ToolHash(a), ToolHash(b), timeOf(first), timeOf(changed)
		out = append(out, t)
		return nil
	}, `SELECT name, approved, seen, first_at, changed_at FROM tools WHERE server_id = $1 ORDER BY name`, server.String())
	return out, err
}
