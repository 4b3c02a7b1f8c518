package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// KeptTools is how many tools of one server are remembered.
const KeptTools = 2000

// ErrToolMoved says that a tool was listed differently since somebody looked.
var ErrToolMoved = errors.New("the tool was listed with another definition meanwhile")

// ToolHash is the SHA-256 of a tool's definition.
type ToolHash [32]byte

// String is lower-case hexadecimal.
func (h ToolHash) String() string { return hexOf(token.Digest(h)) }

// ToolDefinition is a tool as its server lists it.
type ToolDefinition struct {
	Hash ToolHash
	Text string // canonical JSON, for people; "" when it is too long
}

// Tool is what is remembered of a tool.
type Tool struct {
	Name      string
	Approved  ToolDefinition // the first one listed, or the one approved since
	Seen      ToolDefinition // the last one listed
	FirstAt   time.Time      // when it was first listed
	ChangedAt time.Time      // since when it waits for approval; zero: it does not
}

// Changed reports a tool that waits for approval.
func (t Tool) Changed() bool { return !t.ChangedAt.IsZero() }

// SeenTools is what became of one list.
type SeenTools struct {
	Changed []string // wait for approval; sorted
	New     []string // of those, that began to with this list; sorted
	Beyond  []string // are not remembered, because KeptTools are; sorted
}

// SeeTools compares what a server lists with what is remembered of it, and
// remembers what is new. A tool that was never listed is approved. One that is
// listed differently waits for ApproveTools from then on, also when it is listed
// as it was again: who shows one text to a reviewer and another to a model gets
// nothing by it. That a tool begins to wait is a revision of the server where it
// denies changed tools; so there are at most as many as tools between two
// approvals. A server that does not exist remembers nothing.
func (s *Store) SeeTools(ctx context.Context, server identity.ServerID, listed map[string]ToolDefinition) (SeenTools, error) {
	known, err := s.Tools(ctx, server)
	if err != nil {
		return SeenTools{}, err
	}
	seen, same := compare(known, listed)
	if same {
		return seen, nil
	}
	err = s.write(ctx, "noting tools", func(tx conn) error {
		// Like revise, this holds the row until the end: nobody else writes.
		if _, err := tx.exec(`UPDATE meta SET revision = revision WHERE id = 1`); err != nil {
			return err
		}
		var change string
		if err := tx.row(`SELECT tool_changes FROM servers WHERE id = $1`, server.String())(&change); err != nil {
			return err
		}
		if known, err = toolsOf(tx, server); err != nil {
			return err
		}
		seen, _ = compare(known, listed)
		if len(seen.New) > 0 && change == ToolChangesDeny {
			if _, err := s.revise(tx, ChangeServer, server.String()); err != nil {
				return err
			}
		}
		return s.noteTools(tx, server, known, listed)
	})
	if errors.Is(err, ErrNotFound) {
		return SeenTools{}, nil
	}
	if err == nil && len(seen.New) > 0 {
		s.announce()
	}
	return seen, err
}

// compare says what a list means, and whether it changes nothing.
func compare(known []Tool, listed map[string]ToolDefinition) (seen SeenTools, same bool) {
	byName := make(map[string]Tool, len(known))
	for _, tool := range known {
		byName[tool.Name] = tool
	}
	same, room := true, KeptTools-len(known)
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		tool, remembered := byName[name]
		differs := remembered && listed[name].Hash != tool.Approved.Hash
		switch {
		case !remembered && room > 0:
			room, same = room-1, false
			continue
		case !remembered:
			seen.Beyond = append(seen.Beyond, name)
			continue
		case differs && !tool.Changed():
			seen.New = append(seen.New, name)
			same = false
		case listed[name].Hash != tool.Seen.Hash:
			same = false
		}
		if differs || tool.Changed() {
			seen.Changed = append(seen.Changed, name)
		}
	}
	return seen, same
}

// noteTools writes what compare found, in the same order: that of names.
func (s *Store) noteTools(tx conn, server identity.ServerID, known []Tool, listed map[string]ToolDefinition) error {
	room, now := KeptTools-len(known), micros(s.now())
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		d := listed[name]
		i := slices.IndexFunc(known, func(t Tool) bool { return t.Name == name })
		var err error
		switch {
		case i >= 0 && d.Hash == known[i].Seen.Hash:
		case i >= 0:
			_, err = tx.exec(`UPDATE tools SET seen = $1, seen_text = $2, changed_at = CASE changed_at WHEN 0 THEN $3 ELSE changed_at END
				WHERE server_id = $4 AND name = $5`, d.Hash.String(), d.Text, now, server.String(), name)
		case room > 0:
			room--
			_, err = tx.exec(`INSERT INTO tools (server_id, name, approved, seen, first_at, changed_at, approved_text, seen_text)
				VALUES ($1, $2, $3, $3, $4, 0, $5, $5)`, server.String(), name, d.Hash.String(), now, d.Text)
		}
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

// WaitingTools is how many tools of all servers wait for approval.
func (s *Store) WaitingTools(ctx context.Context) (n int64, err error) {
	if err = s.read(ctx).row(`SELECT COUNT(*) FROM tools WHERE changed_at > 0`)(&n); err != nil {
		return 0, failed("counting changed tools", err)
	}
	return n, nil
}

// ApproveTools approves the definitions that were listed last, of the tools that
// are named or, without any, of all, and says how many had waited. A hash that
// is given is the one that somebody has looked at. ErrNotFound: a name is not
// remembered; ErrToolMoved: a tool has another definition by now. Nothing was
// approved then.
func (s *Store) ApproveTools(ctx context.Context, server identity.ServerID, named map[string]*ToolHash) (approved, revision int64, err error) {
	err = s.write(ctx, "approving tools", func(tx conn) error {
		if revision, err = s.revise(tx, ChangeServer, server.String()); err != nil {
			return err
		}
		known, err := toolsOf(tx, server)
		if err != nil {
			return err
		}
		if err := approvable(known, named); err != nil {
			return err
		}
		for _, tool := range known {
			if _, asked := named[tool.Name]; !tool.Changed() || len(named) > 0 && !asked {
				continue
			}
			approved++
			_, err := tx.exec(`UPDATE tools SET approved = seen, approved_text = seen_text, changed_at = 0
				WHERE server_id = $1 AND name = $2`, server.String(), tool.Name)
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

func approvable(known []Tool, named map[string]*ToolHash) error {
	for name, looked := range named {
		i := slices.IndexFunc(known, func(t Tool) bool { return t.Name == name })
		if i < 0 {
			return ErrNotFound
		}
		if looked != nil && *looked != known[i].Seen.Hash {
			return ErrToolMoved
		}
	}
	return nil
}

// ForgetTools forgets everything that is remembered of a server: what it lists
// next is approved. It says how many there were.
func (s *Store) ForgetTools(ctx context.Context, server identity.ServerID) (forgotten, revision int64, err error) {
	err = s.write(ctx, "forgetting tools", func(tx conn) error {
		if revision, err = s.revise(tx, ChangeServer, server.String()); err != nil {
			return err
		}
		forgotten, err = tx.exec(`DELETE FROM tools WHERE server_id = $1`, server.String())
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	s.announce()
	return forgotten, revision, nil
}

func toolsOf(c conn, server identity.ServerID) ([]Tool, error) {
	var out []Tool
	err := c.rows(func(row scan) error {
		var t Tool
		var approved, seen string
		var first, changed int64
		if err := row(&t.Name, &approved, &seen, &first, &changed, &t.Approved.Text, &t.Seen.Text); err != nil {
			return err
		}
		a, errA := parseDigest(approved)
		b, errB := parseDigest(seen)
		if errA != nil || errB != nil {
			return fault{errDigest}
		}
		t.Approved.Hash, t.Seen.Hash, t.FirstAt, t.ChangedAt = ToolHash(a), ToolHash(b), timeOf(first), timeOf(changed)
		out = append(out, t)
		return nil
	}, `SELECT name, approved, seen, first_at, changed_at, approved_text, seen_text FROM tools WHERE server_id = $1 ORDER BY name`, server.String())
	return out, err
}
