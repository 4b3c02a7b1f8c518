package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// AccessToken is what is known of one access token; the token itself is not.
// Times are of microseconds; a zero one means never.
type AccessToken struct {
	ID         string
	Server     identity.ServerID // the one server that it is for
	Name       string
	Scopes     []string
	Narrowed   bool // false: made without scopes, may do all that its server allows
	CreatedAt  time.Time
	ExpiresAt  time.Time
	LastUsedAt time.Time
	Digest     token.Digest // SHA-256 of the whole token
}

var errNoDigest = errors.New("the token's digest is missing")

// CreateToken stores an access token and when it was made; an ID is made when
// there is none. It can be resolved from then on: no revision announces it. A
// token with scopes is narrowed, whatever Narrowed says. ErrNotFound: there is
// no such server. ErrIDTaken: a token has this id or digest, or had the id
// until a moment ago.
func (s *Store) CreateToken(ctx context.Context, t AccessToken) (AccessToken, error) {
	if t.Digest == (token.Digest{}) {
		return AccessToken{}, failed("creating token", errNoDigest)
	}
	if t.ID == "" {
		t.ID = uuid.NewString()
	}
	t.Narrowed = t.Narrowed || len(t.Scopes) > 0
	t.CreatedAt, t.ExpiresAt, t.LastUsedAt = timeOf(micros(s.now())), timeOf(micros(t.ExpiresAt)), time.Time{}
	scopes, err := listText(t.Scopes)
	if err != nil {
		return AccessToken{}, failed("creating token", err)
	}
	err = s.write(ctx, "creating token", func(tx conn) error {
		var found string
		if err := tx.row(`SELECT id FROM servers WHERE id = $1`, t.Server.String())(&found); err != nil {
			return err
		}
		stored, err := tx.exec(`INSERT INTO access_tokens (`+tokenColumns+`)
			SELECT $1, id, $3, $4, $5, $6, $7, $8, $9 FROM servers WHERE id = $2
				AND NOT EXISTS (SELECT 1 FROM revocations WHERE kind = $10 AND key = $1)
			ON CONFLICT DO NOTHING`,
			t.ID, t.Server.String(), t.Name, hexOf(t.Digest), scopes, number(t.Narrowed),
			micros(t.CreatedAt), micros(t.ExpiresAt), micros(t.LastUsedAt), int64(revocation.KindAccessToken))
		if err == nil && stored == 0 {
			return ErrIDTaken
		}
		return err
	})
	if err != nil {
		return AccessToken{}, err
	}
	return t, nil
}

// Tokens lists a server's access tokens, the oldest first, and returns the
// cursor of the next page, "" at the end. A server that does not exist has
// none. ErrCursor: Page.After is none of this list.
func (s *Store) Tokens(ctx context.Context, server identity.ServerID, p Page) ([]AccessToken, string, error) {
	after, id, err := parseTokenCursor(p.After)
	if err != nil {
		return nil, "", err
	}
	var out []AccessToken
	err = s.read(ctx).rows(func(row scan) error {
		t, err := scanToken(row)
		out = append(out, t)
		return err
	}, `SELECT `+tokenColumns+` FROM access_tokens
		WHERE server_id = $1 AND (created_at, id) > ($2, $3) ORDER BY created_at, id LIMIT $4`,
		server.String(), after, id, p.limit()+1)
	if err != nil {
		return nil, "", failed("listing tokens", err)
	}
	if len(out) <= p.limit() {
		return out, "", nil
	}
	out = out[:p.limit()]
	last := out[len(out)-1]
	return out, cursor(strconv.FormatInt(micros(last.CreatedAt), 10), last.ID), nil
}

func parseTokenCursor(text string) (created int64, id string, err error) {
	if text == "" {
		return -1, "", nil
	}
	major, id, err := parseCursor(text)
	if err != nil {
		return 0, "", err
	}
	if created, err = strconv.ParseInt(major, 10, 64); err != nil {
		return 0, "", ErrCursor
	}
	return created, id, nil
}

// Token reads one access token of a server.
func (s *Store) Token(ctx context.Context, server identity.ServerID, id string) (AccessToken, error) {
	t, err := scanToken(s.read(ctx).row(
		`SELECT `+tokenColumns+` FROM access_tokens WHERE id = $1 AND server_id = $2`, id, server.String()))
	if err != nil {
		return AccessToken{}, failed("reading token", err)
	}
	return t, nil
}

// DeleteToken removes an access token. From its return on TokenByDigest does
// not find it, and the entry is in the log.
func (s *Store) DeleteToken(ctx context.Context, server identity.ServerID, id string) (revocation.Entry, error) {
	entry := revocation.Entry{Kind: revocation.KindAccessToken, Key: id, Server: server}
	err := s.write(ctx, "deleting token", func(tx conn) (err error) {
		if entry.Seq, err = nextSeq(tx); err != nil {
			return err
		}
		var callLimit int64
		err = tx.row(`DELETE FROM access_tokens WHERE id = $1 AND server_id = $2
			RETURNING (SELECT call_limit FROM servers WHERE servers.id = access_tokens.server_id)`,
			id, server.String())(&callLimit)
		if err != nil {
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

// TokenByDigest says what a presented token stands for, expired or not, and
// how far the revocation log was when it did: an entry beyond the position may
// end the token, one up to it does not. The position is also there when the
// error is ErrNotFound.
func (s *Store) TokenByDigest(ctx context.Context, digest token.Digest) (AccessToken, revocation.Position, error) {
	var at revocation.Position
	var found bool
	// One statement sees one state of the database, the position included.
	row := s.read(ctx).row(`SELECT m.database_id, m.epoch, m.seq, t.id IS NOT NULL,
			COALESCE(t.id, ''), COALESCE(t.server_id, ''), COALESCE(t.name, ''), COALESCE(t.digest, ''),
			COALESCE(t.scopes, ''), COALESCE(t.narrowed, 0), COALESCE(t.created_at, 0),
			COALESCE(t.expires_at, 0), COALESCE(t.last_used_at, 0)
		FROM meta m LEFT JOIN access_tokens t ON t.digest = $1 WHERE m.id = 1`, hexOf(digest))
	t, err := scanToken(func(into ...any) error {
		err := row(append([]any{&at.Database, &at.Epoch, &at.Seq, &found}, into...)...)
		if err == nil && !found {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return AccessToken{}, at, failed("resolving token", err)
	}
	return t, at, nil
}

// TouchTokens notes when tokens (by id) were last used; an earlier time than
// the one noted, and a token that is gone, change nothing.
func (s *Store) TouchTokens(ctx context.Context, used map[string]time.Time) error {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(used)), rowsPerWrite) {
		err := s.write(ctx, "noting the use of tokens", func(tx conn) error {
			for _, id := range ids {
				_, err := tx.exec(`UPDATE access_tokens SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`,
					micros(used[id]), id)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// KeepExpiredTokens is how long an expired token stays listed, so that people
// can see what has ended: the housekeeper drops what expired longer ago.
const KeepExpiredTokens = 30 * 24 * time.Hour

// DropExpiredTokens removes the rows of tokens that expired at or before a
// time, or now if that is earlier, and says how many. No entry is needed:
// nobody accepts them any more.
func (s *Store) DropExpiredTokens(ctx context.Context, before time.Time) (int64, error) {
	at := micros(earlier(before, s.now()))
	var dropped int64
	for {
		var n int64
		err := s.write(ctx, "dropping expired tokens", func(tx conn) (err error) {
			n, err = tx.exec(`DELETE FROM access_tokens WHERE id IN (
				SELECT id FROM access_tokens WHERE expires_at > 0 AND expires_at <= $1 LIMIT $2)`, at, rowsPerWrite)
			return err
		})
		if err != nil {
			return dropped, err
		}
		if dropped += n; n < rowsPerWrite {
			return dropped, nil
		}
	}
}

// tokenColumns and scanToken have one order.
const tokenColumns = `id, server_id, name, digest, scopes, narrowed, created_at, expires_at, last_used_at`

func scanToken(row scan) (AccessToken, error) {
	var t AccessToken
	var server, digest, scopes string
	var created, expires, used int64
	err := row(&t.ID, &server, &t.Name, &digest, &scopes, &t.Narrowed, &created, &expires, &used)
	if err != nil {
		return AccessToken{}, err
	}
	t.CreatedAt, t.ExpiresAt, t.LastUsedAt = timeOf(created), timeOf(expires), timeOf(used)
	if t.Server, err = identity.ParseServerID(server); err != nil {
		return AccessToken{}, fault{err}
	}
	if t.Digest, err = parseDigest(digest); err != nil {
		return AccessToken{}, err
	}
	return t, parse(scopes, &t.Scopes)
}
