package store

import (
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/arbiter-gateway/arbiter/internal/token"
)

// How values look in columns, so that one SQL text serves every engine.

// micros is how a time is stored; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// number is how a bool is stored.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// listText is how a list is stored; an empty one is "".
func listText(list []string) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// mapText is how a map is stored; an empty one is "".
func mapText(m map[string]string) (string, error) {
	if len(m) == 0 {
		return "", nil
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	return string(text), err
}

// parse reads what listText or mapText made.
func parse(text string, into any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fault{err}
	}
	return nil
}

var errDigest = errors.New("a stored digest is damaged")

func hexOf(d token.Digest) string { return hex.EncodeToString(d[:]) }

func parseDigest(text string) (token.Digest, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(token.Digest{}) {
		return token.Digest{}, fault{errDigest}
	}
	return token.Digest(raw), nil
}
