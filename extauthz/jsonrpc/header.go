package jsonrpc

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// ErrHeader says that the value of a mirrored header cannot be read.
var ErrHeader = errors.New("header value is neither plain ASCII nor =?base64?...?= of UTF-8")

const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// DecodeHeader returns what the value of Mcp-Method or Mcp-Name says
// (MCP 2026-07-28 basic/transports, "Value Encoding"): the text itself if it is
// visible ASCII, spaces and tabs, or the UTF-8 text inside
//
//	=?base64?{standard alphabet, padded, RFC 4648 section 4}?=
//
// whose markers are case-sensitive. Blanks around the value are HTTP's and go
// (RFC 9110 section 5.5). What could be read in two ways is an ErrHeader: markers
// that overlap, line breaks or stray bits in the base64.
func DecodeHeader(value string) (string, error) {
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; (c < ' ' && c != '\t') || c > '~' {
			return "", ErrHeader
		}
	}
	if !strings.HasPrefix(value, sentinelStart) || !strings.HasSuffix(value, sentinelEnd) {
		return value, nil
	}
	encoded, ok := strings.CutSuffix(value[len(sentinelStart):], sentinelEnd)
	if !ok {
		return "", ErrHeader
	}
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || !utf8.Valid(text) {
		return "", ErrHeader
	}
	return string(text), nil
}
