// Package secret has text that must never be printed.
package secret

import (
	"log/slog"
	"unique"
)

const redacted = "redacted"

// Text is a secret: formatting, logging and marshalling show "redacted".
// Reveal is the one way to the value, so that a reader can find every use.
//
// The value lies behind a handle because fmt does not call the methods of a
// Text in an unexported field of another struct: there it prints what it finds,
// which must be an address and not the secret. Two Texts are equal when their
// secrets are.
type Text struct{ value unique.Handle[string] }

// New wraps a secret. New("") is the zero Text.
func New(value string) Text {
	if value == "" {
		return Text{}
	}
	return Text{unique.Make(value)}
}

// Reveal returns the secret itself.
func (t Text) Reveal() string {
	if t.Empty() {
		return ""
	}
	return t.value.Value()
}

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return t == Text{} }

// String implements fmt.Stringer.
func (Text) String() string { return redacted }

// GoString implements fmt.GoStringer, for %#v.
func (Text) GoString() string { return redacted }

// LogValue implements slog.LogValuer.
func (Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }
