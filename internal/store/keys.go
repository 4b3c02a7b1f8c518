package store

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"

	"github.com/arbiter-gateway/arbiter/internal/token"
)

// SessionKey seals sessions.
type SessionKey struct {
	ID  uint32 // never zero, never used again
	Key [32]byte
}

// Keys is what every replica needs to know tokens and sessions of ours.
type Keys struct {
	TokenMAC token.MACKey
	Sessions []SessionKey // never empty; the first seals, all of them open
}

// A key is printed as "redacted", alone and among others.
const redacted = "redacted"

// String hides the key.
func (SessionKey) String() string { return redacted }

// GoString hides the key, for %#v.
func (SessionKey) GoString() string { return redacted }

// LogValue hides the key.
func (SessionKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the key.
func (SessionKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// String hides the keys.
func (Keys) String() string { return redacted }

// GoString hides the keys, for %#v.
func (Keys) GoString() string { return redacted }

// LogValue hides the keys.
func (Keys) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the keys.
func (Keys) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// The kinds of sealed_keys.
const (
	kindTokenMAC = "token_mac"
	kindSession  = "session"
)

// Keys returns the keys. The first call of a database's life makes them, as a
// revision.
func (s *Store) Keys(ctx context.Context) (Keys, error) {
	keys, err := s.keys(s.read(ctx))
	if errors.Is(err, ErrNotFound) {
		if err = s.makeKeys(ctx); err == nil {
			keys, err = s.keys(s.read(ctx))
		}
	}
	if err != nil {
		return Keys{}, failed("reading keys", err)
	}
	return keys, nil
}

// keys says ErrNotFound when they were not made yet. They are made together,
// so some without the others are damage.
func (s *Store) keys(c conn) (Keys, error) {
	var keys Keys
	var rows, tokenKeys int
	err := c.rows(func(row scan) error {
		var kind, sealed string
		var id int64
		if err := row(&kind, &id, &sealed); err != nil {
			return err
		}
		key, err := s.openKey(kind, id, sealed)
		if err != nil {
			return err
		}
		rows++
		switch kind {
		case kindTokenMAC:
			tokenKeys++
			keys.TokenMAC = key
		case kindSession:
			keys.Sessions = append(keys.Sessions, SessionKey{uint32(id), key})
		}
		return nil
	}, `SELECT kind, id, sealed FROM sealed_keys ORDER BY id DESC`)
	switch {
	case err != nil:
		return Keys{}, err
	case rows == 0:
		return Keys{}, ErrNotFound
	case tokenKeys != 1 || len(keys.Sessions) == 0:
		return Keys{}, fault{errKeys}
	}
	return keys, nil
}

var (
	errKeys = errors.New("a stored key is damaged or missing")
	errMade = errors.New("the keys are there already")
)

func keyPlace(kind string, id int64) place {
	return place{"sealed_keys", "sealed", kind + "/" + strconv.FormatInt(id, 10)}
}

func (s *Store) openKey(kind string, id int64, sealed string) ([32]byte, error) {
	key, err := s.unseal(sealed, keyPlace(kind, id))
	if err != nil {
		return [32]byte{}, err
	}
	if len(key) != 32 {
		return [32]byte{}, fault{errKeys}
	}
	return [32]byte(key), nil
}

// makeKeys makes the first key of each kind, unless another process did in the
// meantime.
func (s *Store) makeKeys(ctx context.Context) error {
	err := s.transact(ctx, s.writer, nil, func(tx conn) error {
		if _, err := s.revise(tx, ChangeKeys, ""); err != nil {
			return err
		}
		for _, kind := range []string{kindTokenMAC, kindSession} {
			if err := s.makeKey(tx, kind, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errMade) {
		return nil
	}
	if err == nil {
		s.announce()
	}
	return err
}

func (s *Store) makeKey(tx conn, kind string, id int64) error {
	var key [32]byte
	rand.Read(key[:])
	made, err := tx.exec(`INSERT INTO sealed_keys (kind, id, sealed, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (kind, id) DO NOTHING`, kind, id, s.seal(key[:], keyPlace(kind, id)), micros(s.now()))
	if err == nil && made == 0 {
		return errMade
	}
	return err
}
