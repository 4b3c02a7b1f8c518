package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/secret"
)

// What a server without limits of its own gets.
const (
	DefaultMaxBody   = 4 << 20 // bytes
	DefaultCallLimit = 10 * time.Minute
)

// Header is one header that an upstream wants, such as an API key.
type Header struct {
	Name  string
	Value secret.Text
}

// Limits bound one call to a server.
type Limits struct {
	MaxBody   int           // bytes; 0: DefaultMaxBody
	CallLimit time.Duration // until the answer's end; 0: DefaultCallLimit
}

// What happens when a server lists another definition of a tool than before.
const (
	ToolChangesAlarm = "alarm" // it is reported
	ToolChangesDeny  = "deny"  // and the tool is denied until it is approved
)

// RecordArguments lets decision records carry the values of arguments.
type RecordArguments struct {
	Mask []string      // JSON pointers into arguments, * for any key or index: shown as "masked"
	Keep time.Duration // whole seconds; then control drops the values
}

// Server is one MCP server behind the gateway.
type Server struct {
	ID             identity.ServerID
	Name           string // unique in the fleet
	Enabled        bool
	MCP, RPC       string // upstream URLs; "": none
	CA             string // PEM; "": the system's roots
	Legacy, Modern bool   // the eras that it speaks
	AllowedOrigins []string
	Labels         map[string]string
	Limits         Limits
	Batches        bool // JSON-RPC batches in sessions of 2025-03-26
	LiteralDenials bool // denials as HTTP statuses

	// What policies see of it, and what they are kept from.

	Grants          jsontext.Value   // JSON array, input.server.grants; nil: absent
	PolicyData      jsontext.Value   // JSON object, input.server.data; nil: absent
	RecordArguments *RecordArguments // nil: no argument value is recorded
	ToolChanges     string           // ToolChangesAlarm or ToolChangesDeny; "": alarm

	// The store sets the rest; what a caller puts there is ignored.

	HeaderNames     []string
	HeadersRevision int64 // revision at which the headers last changed; 0: never had any
	StoppedRevision int64 // revision at which it was last disabled; 0: never
	Revision        int64 // revision at which anything last changed
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// CreateServer stores a server and the headers that its upstream wants; an ID
// is made when there is none. It says ErrNameTaken, or ErrIDTaken for the id of
// another server, also of one whose deletion a replica may still remember.
func (s *Store) CreateServer(ctx context.Context, srv Server, headers []Header) (Server, error) {
	if srv.ID.IsZero() {
		srv.ID = identity.NewServerID()
	}
	err := s.write(ctx, "creating server", func(tx conn) error {
		revision, err := s.revise(tx, ChangeServer, srv.ID.String())
		if err != nil {
			return err
		}
		if err := free(tx, srv.ID, srv.Name); err != nil {
			return err
		}
		srv.Revision, srv.CreatedAt = revision, timeOf(micros(s.now()))
		srv.UpdatedAt, srv.HeadersRevision = srv.CreatedAt, 0
		sealed, err := s.dress(&srv, headers)
		if err != nil {
			return err
		}
		row, err := serverRow(&srv)
		if err != nil {
			return err
		}
		_, err = tx.exec(`INSERT INTO servers (headers, `+serverColumns+`) VALUES
			($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)`,
			append([]any{sealed}, row...)...)
		return err
	})
	if err != nil {
		return Server{}, err
	}
	s.announce()
	return srv, nil
}

// free reports whether a new server may have this id and name.
func free(tx conn, id identity.ServerID, name string) error {
	var found string
	err := tx.row(`SELECT id FROM servers WHERE id = $1
		UNION ALL SELECT key FROM revocations WHERE kind = $2 AND key = $1 LIMIT 1`,
		id.String(), int64(revocation.KindServer))(&found)
	if !errors.Is(err, ErrNotFound) {
		return errors.Join(err, ErrIDTaken)
	}
	return freeName(tx, id, name)
}

// freeName reports whether no server but id has this name.
func freeName(tx conn, id identity.ServerID, name string) error {
	var found string
	err := tx.row(`SELECT id FROM servers WHERE name = $1 AND id <> $2`, name, id.String())(&found)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return ErrNameTaken
}

// UpdateServer lets edit change a server. An error of edit is returned, and
// then nothing was changed. edit may run while other writes wait: it is quick
// and calls no method of the Store.
//
// headers replaces all headers; with nil they are kept, but only while no
// upstream URL leads to a scheme, host or port that it did not lead to before:
// what was given to call one upstream is not sent to another.
func (s *Store) UpdateServer(ctx context.Context, id identity.ServerID, edit func(*Server) error, headers *[]Header) (Server, error) {
	var after Server
	err := s.write(ctx, "updating server", func(tx conn) error {
		revision, err := s.revise(tx, ChangeServer, id.String())
		if err != nil {
			return err
		}
		before, err := serverWhere(tx, "id", id.String())
		if err != nil {
			return err
		}
		after = before
		after.HeaderNames = slices.Clone(before.HeaderNames)
		if err := edit(&after); err != nil {
			return err
		}
		after.ID, after.CreatedAt = id, before.CreatedAt
		after.HeaderNames, after.HeadersRevision = before.HeaderNames, before.HeadersRevision
		after.Revision, after.UpdatedAt = revision, timeOf(micros(s.now()))
		if after.StoppedRevision = before.StoppedRevision; before.Enabled && !after.Enabled {
			after.StoppedRevision = revision
		}
		if err := freeName(tx, id, after.Name); err != nil {
			return err
		}
		if headers == nil && len(before.HeaderNames) > 0 && leadsElsewhere(before, after) {
			headers = &[]Header{}
		}
		return s.replace(tx, &after, headers)
	})
	if err != nil {
		return Server{}, err
	}
	s.announce()
	return after, nil
}

// replace writes a server's row again, with other headers unless they are nil.
func (s *Store) replace(tx conn, srv *Server, headers *[]Header) error {
	if headers != nil {
		sealed, err := s.dress(srv, *headers)
		if err != nil {
			return err
		}
		_, err = tx.exec(`UPDATE servers SET headers = $1 WHERE id = $2`, sealed, srv.ID.String())
		if err != nil {
			return err
		}
	}
	if err := stripUnlessSame(tx, srv); err != nil {
		return err
	}
	row, err := serverRow(srv)
	if err != nil {
		return err
	}
	_, err = tx.exec(`UPDATE servers SET name = $2, enabled = $3, mcp = $4, rpc = $5, ca = $6, legacy = $7,
		modern = $8, allowed_origins = $9, labels = $10, max_body = $11, call_limit = $12, batches = $13,
		literal_denials = $14, header_names = $15, headers_revision = $16, revision = $17, created_at = $18,
		updated_at = $19, stopped_revision = $20, grants = $21, policy_data = $22, record_arguments = $23,
		tool_changes = $24 WHERE id = $1`, row...)
	return err
}

// DeleteServer removes a server, its headers and its access tokens. The one
// entry ends all of its credentials.
func (s *Store) DeleteServer(ctx context.Context, id identity.ServerID) (revocation.Entry, error) {
	entry := revocation.Entry{Kind: revocation.KindServer, Key: id.String(), Server: id}
	err := s.write(ctx, "deleting server", func(tx conn) error {
		_, err := s.revise(tx, ChangeServer, id.String())
		if err != nil {
			return err
		}
		if entry.Seq, err = nextSeq(tx); err != nil {
			return err
		}
		var callLimit int64
		err = tx.row(`DELETE FROM servers WHERE id = $1 RETURNING call_limit`, id.String())(&callLimit)
		if err != nil {
			return err
		}
		if err := stripArguments(tx, id); err != nil {
			return err
		}
		s.begin(&entry, time.Duration(callLimit)*time.Microsecond)
		return appendEntry(tx, entry)
	})
	if err != nil {
		return revocation.Entry{}, err
	}
	s.announce()
	return entry, nil
}

// Server reads one server.
func (s *Store) Server(ctx context.Context, id identity.ServerID) (Server, error) {
	return s.server(ctx, "id", id.String())
}

// ServerByName reads the server of exactly this name.
func (s *Store) ServerByName(ctx context.Context, name string) (Server, error) {
	return s.server(ctx, "name", name)
}

func (s *Store) server(ctx context.Context, column, value string) (Server, error) {
	srv, err := serverWhere(s.read(ctx), column, value)
	if err != nil {
		return Server{}, failed("reading server", err)
	}
	return srv, nil
}

// serverWhere reads one server by a unique column, whose name is a constant.
func serverWhere(c conn, column, value string) (Server, error) {
	return scanServer(c.row(`SELECT `+serverColumns+` FROM servers WHERE `+column+` = $1`, value))
}

// Servers lists servers by name, and returns the cursor of the next page, ""
// at the end. A server that stays is listed once, whatever comes and goes
// between the pages. ErrCursor: Page.After is none of this list.
func (s *Store) Servers(ctx context.Context, p Page) ([]Server, string, error) {
	name, id, err := parseCursor(p.After)
	if err != nil {
		return nil, "", err
	}
	var out []Server
	err = s.read(ctx).rows(func(row scan) error {
		srv, err := scanServer(row)
		out = append(out, srv)
		return err
	}, `SELECT `+serverColumns+` FROM servers WHERE (name, id) > ($1, $2) ORDER BY name, id LIMIT $3`,
		name, id, p.limit()+1)
	if err != nil {
		return nil, "", failed("listing servers", err)
	}
	if len(out) <= p.limit() {
		return out, "", nil
	}
	out = out[:p.limit()]
	last := out[len(out)-1]
	return out, cursor(last.Name, last.ID.String()), nil
}

// AllServers calls each for every server, in no order, and returns the
// revision at which they were so: what starts from it goes on with
// ChangesSince. An error of each ends it.
func (s *Store) AllServers(ctx context.Context, each func(Server) error) (int64, error) {
	var revision int64
	err := s.snapshot(ctx, "reading all servers", func(tx conn) (err error) {
		if revision, err = revisionOf(tx); err != nil {
			return err
		}
		return tx.rows(func(row scan) error {
			srv, err := scanServer(row)
			if err != nil {
				return err
			}
			return each(srv)
		}, `SELECT `+serverColumns+` FROM servers`)
	})
	if err != nil {
		return 0, err
	}
	return revision, nil
}
