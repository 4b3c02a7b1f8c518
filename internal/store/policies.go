package store

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
)

// KeptPolicies is how many policies are kept: the one that decides, and those
// before it, to explain what they decided. One more is kept when the highest
// signed version is older than these.
const KeptPolicies = 20

// ErrDowngrade says that a signed policy of a higher version, or another one of
// the same version, was accepted before.
var ErrDowngrade = errors.New("a signed policy of this or a higher version was accepted before")

// Policy is a bundle that was accepted.
type Policy struct {
	Revision string            // policies.Bundle.Revision
	Origin   string            // where it came from, for people
	Version  int64             // of a signed bundle; 0: not signed
	Files    map[string][]byte // by path

	// The store sets the rest; what a caller puts there is ignored.

	Settings   int64 // revision of the store at which it was accepted: the highest one decides
	AcceptedAt time.Time
}

// AddPolicy makes a policy the one that decides. The caller has compiled and
// tested it. It says ErrDowngrade for a signed one that is not newer than the
// newest signed one that was ever accepted, unless it is the same.
func (s *Store) AddPolicy(ctx context.Context, p Policy) (Policy, error) {
	files, err := json.Marshal(p.Files, json.Deterministic(true))
	if err != nil {
		return Policy{}, failed("accepting policy", err)
	}
	err = s.write(ctx, "accepting policy", func(tx conn) error {
		if p.Settings, err = s.revise(tx, ChangePolicy, ""); err != nil {
			return err
		}
		if err := notOlder(tx, p); err != nil {
			return err
		}
		p.AcceptedAt = timeOf(micros(s.now()))
		_, err := tx.exec(`INSERT INTO policies (n, revision, origin, version, files, accepted_at) VALUES ($1, $2, $3, $4, $5, $6)`,
			p.Settings, p.Revision, p.Origin, p.Version, string(files), micros(p.AcceptedAt))
		if err != nil {
			return err
		}
		// What knows the highest version stays, however many come after it.
		_, err = tx.exec(`DELETE FROM policies
			WHERE n NOT IN (SELECT n FROM policies ORDER BY n DESC LIMIT $1)
			AND n <> (SELECT n FROM policies ORDER BY version DESC, n DESC LIMIT 1)`, KeptPolicies)
		return err
	})
	if err != nil {
		return Policy{}, err
	}
	s.announce()
	return p, nil
}

// notOlder compares a signed policy with the newest signed one.
func notOlder(tx conn, p Policy) error {
	if p.Version == 0 {
		return nil
	}
	var revision string
	var version int64
	err := tx.row(`SELECT revision, version FROM policies ORDER BY version DESC, n DESC LIMIT 1`)(&revision, &version)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case p.Version <= version && p.Revision != revision:
		return ErrDowngrade
	}
	return nil
}

// Policy reads the one that decides. ErrNotFound: none was ever accepted.
func (s *Store) Policy(ctx context.Context) (Policy, error) {
	p, err := scanPolicy(s.read(ctx).row(`SELECT ` + policyColumns + ` FROM policies ORDER BY n DESC LIMIT 1`))
	if err != nil {
		return Policy{}, failed("reading policy", err)
	}
	return p, nil
}

// PolicyByRevision reads the newest kept policy of this source.
func (s *Store) PolicyByRevision(ctx context.Context, revision string) (Policy, error) {
	p, err := scanPolicy(s.read(ctx).row(`SELECT `+policyColumns+` FROM policies WHERE revision = $1 ORDER BY n DESC LIMIT 1`, revision))
	if err != nil {
		return Policy{}, failed("reading policy "+revision, err)
	}
	return p, nil
}

const policyColumns = `n, revision, origin, version, files, accepted_at`

func scanPolicy(row scan) (Policy, error) {
	var p Policy
	var files string
	var accepted int64
	if err := row(&p.Settings, &p.Revision, &p.Origin, &p.Version, &files, &accepted); err != nil {
		return Policy{}, err
	}
	p.AcceptedAt = timeOf(accepted)
	return p, parse(files, &p.Files)
}
