// Package secret has text that must never be printed.
package secret

import "log/slog"

const redacted = "redacted"

// Text is a secret: formatting, logging and marshalling show "redacted".
// Reveal is the one way to the value, so that a reader can find every use.
type Text struct{ value string }

// New wraps a secret.
func New(value string) Text { return Text{value} }

// Reveal returns the secret itself.
func (t Text) Reveal() string { return t.value }

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return t.value == "" }

// String implements fmt.Stringer.
func (Text) String() string { return redacted }

// GoString implements fmt.GoStringer, for %#v.
func (Text) GoString() string { return redacted }

// LogValue implements slog.LogValuer.
func (Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }
