package session

import (
	"encoding/base64"
	"encoding/binary"
	"net/netip"
	"time"
)

const (
	format1 = 1

	flagUpstream = 1 << 0 // the upstream has a session id
	flagIPv6     = 1 << 1 // the address has 16 bytes, not 4

	maxUpstream    = 1024
	maxVersion     = 32
	versionIsText  = 0x80
	fixedLen       = 1 + 1 + 16 + 16 + 8 + 8
	longestPlain   = fixedLen + 16 + 2 + 1 + maxVersion + (maxUpstream*7+7)/8
	longestPayload = overhead + longestPlain
)

// maxText is the length of the longest text that Seal returns.
var maxText = base64.RawURLEncoding.EncodedLen(longestPayload)

// versions numbers the MCP revisions, so that asking for one costs a byte. A
// number is never given away again, and is written one release after the first
// that reads it: an older replica would call such a session forged.
var versions = map[byte]string{
	1: "2024-11-05",
	2: "2025-03-26",
	3: "2025-06-18",
	4: "2025-11-25",
	5: "2026-07-28",
}

// encode draws a session as it is sealed. Numbers are big endian.
//
//	format       1  1
//	flags        1  1: upstream session id, 2: IPv6 address; no others
//	server      16
//	principal   16
//	issued       8  Unix seconds, signed
//	expires      8  Unix seconds, signed
//	address   4|16
//	port         2
//	version      1  number of a known one, or
//	           1+n  0x80 + n and n bytes (0 to 32) of any other text
//	upstream     n  the rest: the session id, seven bits per character
//
// Seven bits are enough for visible ASCII, and keep the whole under 512
// characters with an id of 256, also over IPv6 and with an unknown version.
func encode(s Session) ([]byte, error) {
	if !upstreamID(s) {
		return nil, ErrUpstreamID
	}
	if len(s.Version) > maxVersion {
		return nil, ErrVersion
	}
	addr := s.Addr.Addr()
	if !addr.IsValid() || addr.Zone() != "" {
		return nil, ErrAddr
	}
	var flags byte
	if s.HasUpstream {
		flags |= flagUpstream
	}
	if addr.Is6() {
		flags |= flagIPv6
	}
	out := append(make([]byte, 0, longestPlain), format1, flags)
	out = append(out, s.Server[:]...)
	out = append(out, s.Principal[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(s.Issued.Unix()))
	out = binary.BigEndian.AppendUint64(out, uint64(s.Expires.Unix()))
	out = append(out, addr.AsSlice()...)
	out = binary.BigEndian.AppendUint16(out, s.Addr.Port())
	out = appendVersion(out, s.Version)
	return pack(out, s.Upstream), nil
}

func upstreamID(s Session) bool {
	if len(s.Upstream) > maxUpstream || !s.HasUpstream && s.Upstream != "" {
		return false
	}
	for i := range len(s.Upstream) {
		if c := s.Upstream[i]; c < 0x21 || c > 0x7e {
			return false
		}
	}
	return true
}

func appendVersion(out []byte, version string) []byte {
	for number, known := range versions {
		if version == known {
			return append(out, number)
		}
	}
	return append(append(out, versionIsText|byte(len(version))), version...)
}

// decode reads what encode wrote; anything else is ErrForged. Its input was
// authenticated, so this guards against a format of another release only.
func decode(plain []byte) (Session, error) {
	r := reader{rest: plain}
	format, flags := r.next(1)[0], r.next(1)[0]
	if format != format1 || flags&^(flagUpstream|flagIPv6) != 0 {
		return Session{}, ErrForged
	}
	s := Session{HasUpstream: flags&flagUpstream != 0}
	copy(s.Server[:], r.next(16))
	copy(s.Principal[:], r.next(16))
	s.Issued, s.Expires = r.seconds(), r.seconds()
	size := 4
	if flags&flagIPv6 != 0 {
		size = 16
	}
	addr, _ := netip.AddrFromSlice(r.next(size))
	s.Addr = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(r.next(2)))
	s.Version = r.version()
	s.Upstream = unpack(r.rest)
	if r.short || !upstreamID(s) {
		return Session{}, ErrForged
	}
	return s, nil
}

// reader takes fields from the front. Past the end it hands out zeros and
// remembers that it was short.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) next(n int) []byte {
	if len(r.rest) < n {
		r.rest, r.short = nil, true
		return make([]byte, n)
	}
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field
}

func (r *reader) seconds() time.Time {
	return time.Unix(int64(binary.BigEndian.Uint64(r.next(8))), 0).UTC()
}

func (r *reader) version() string {
	first := r.next(1)[0]
	if first&versionIsText != 0 {
		n := int(first &^ versionIsText)
		r.short = r.short || n > maxVersion
		return string(r.next(n))
	}
	known, ok := versions[first]
	r.short = r.short || !ok
	return known
}

// pack appends text with seven bits per character, first character first; the
// last byte is filled with zeros.
func pack(out []byte, text string) []byte {
	var bits, have uint
	for i := range len(text) {
		bits, have = bits<<7|uint(text[i]), have+7
		if have >= 8 {
			have -= 8
			out = append(out, byte(bits>>have))
		}
	}
	if have > 0 {
		out = append(out, byte(bits<<(8-have)))
	}
	return out
}

// unpack reverses pack. Seven zero bits are no character: they fill.
func unpack(packed []byte) string {
	text := make([]byte, 0, len(packed)*8/7)
	var bits, have uint
	for _, b := range packed {
		bits, have = bits<<8|uint(b), have+8
		for have >= 7 {
			have -= 7
			if c := byte(bits>>have) & 0x7f; c != 0 {
				text = append(text, c)
			}
		}
	}
	return string(text)
}
