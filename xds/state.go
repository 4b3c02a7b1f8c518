package xds

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbiter-gateway/arbiter/internal/secret"
)

// MaxBody is the hard limit of a request body in bytes. Envoy's own cap is one
// byte more, because on HTTP/2 Envoy lets a few KiB over its cap through to the
// upstream while Check sees them cut: Check refuses what is longer than this.
const MaxBody = 4 << 20

// MaxOpenerAnswer is how many bytes of a JSON answer to initialize Guard can
// ask for with BUFFERED_PARTIAL before Envoy stops buffering.
const MaxOpenerAnswer = 256 << 10

// State is everything Envoy's configuration is made from, but for its Place.
type State struct {
	Certificate string      // PEM, leaf first
	Key         secret.Text // PEM
	TLS12       bool        // also TLS 1.2; default only 1.3

	// CAs are the PEM bundles that servers bring for their upstreams, each one
	// an upstream TLS profile of its own. The profiles "plain" and "tls-system"
	// are always there.
	CAs         []string
	SystemRoots string // file with the system's roots, for "tls-system"

	// What stands between the callers and Envoy, and says where a request came
	// from. Neither: the caller's address is the connection's.
	ProxyProtocol bool   // every connection begins with a PROXY protocol header
	ProxyHops     uint32 // proxies that append to X-Forwarded-For

	Times Times
}

// Times are the time-outs and intervals that Envoy enforces. Zero values mean
// the defaults.
type Times struct {
	Check              time.Duration // one Check; default 2 s
	Guard              time.Duration // one message to Guard; default 1 s
	KeepaliveInterval  time.Duration // HTTP/2 pings to extauthz: at most lease/5; default 2 s
	KeepaliveTimeout   time.Duration // at most lease/10; default 1 s
	RequestHeaders     time.Duration // until a request's headers are in; default 10 s
	Request            time.Duration // until a request's body is in; default 15 s
	StreamFlush        time.Duration // a client that does not read a finished answer; default 30 s
	StreamMax          time.Duration // backstop of every stream; default 24 h
	ConnectUpstream    time.Duration // TCP and TLS to an upstream; default 5 s
	UpstreamIdle       time.Duration // an unused upstream connection; default 4 s
	ClientIdle         time.Duration // a client connection without requests; default 5 min
	UnacknowledgedData time.Duration // TCP_USER_TIMEOUT of clients; default 30 s
}

func (t Times) withDefaults() Times {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&t.Check, 2 * time.Second},
		{&t.Guard, time.Second},
		{&t.KeepaliveInterval, 2 * time.Second},
		{&t.KeepaliveTimeout, time.Second},
		{&t.RequestHeaders, 10 * time.Second},
		{&t.Request, 15 * time.Second},
		{&t.StreamFlush, 30 * time.Second},
		{&t.StreamMax, 24 * time.Hour},
		{&t.ConnectUpstream, 5 * time.Second},
		{&t.UpstreamIdle, 4 * time.Second},
		{&t.ClientIdle, 5 * time.Minute},
		{&t.UnacknowledgedData, 30 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	return t
}

// The upstream TLS profiles that always exist.
const (
	ProfilePlain     = "plain"
	ProfileTLSSystem = "tls-system"
)

// ProfileName names the upstream TLS profile, which is also the Envoy cluster,
// of an upstream that wants TLS or not, verified by the bundle ca (PEM) or, when
// ca is "", by the system's roots.
func ProfileName(overTLS bool, ca string) string {
	if !overTLS {
		return ProfilePlain
	}
	if ca = strings.TrimSpace(ca); ca == "" {
		return ProfileTLSSystem
	}
	sum := sha256.Sum256([]byte(ca))
	return "tls-" + hex.EncodeToString(sum[:8])
}

// ErrState says that a State cannot be turned into a configuration.
var ErrState = errors.New("configuration of the data plane")

// check refuses a State that Envoy would refuse, or run in a way nobody meant.
func (s State) check() error {
	switch {
	case s.Certificate == "" || s.Key.Empty():
		return fmt.Errorf("%w: no server certificate or no key", ErrState)
	case s.SystemRoots == "":
		return fmt.Errorf("%w: no file with system roots", ErrState)
	}
	for _, text := range []string{s.Certificate, s.Key.Reveal(), s.SystemRoots} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: not valid UTF-8", ErrState)
		}
	}
	if _, err := tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key.Reveal())); err != nil {
		return fmt.Errorf("%w: server certificate: %w", ErrState, err)
	}
	for _, ca := range s.CAs {
		if err := CheckCA(ca); err != nil {
			return fmt.Errorf("%w: bundle %s: %w", ErrState, ProfileName(true, ca), err)
		}
	}
	return nil
}

// CheckCA reports why a PEM bundle cannot verify an upstream: it is empty, has
// something other than certificates in it, or a certificate does not parse.
// An empty bundle must never reach Envoy, which would take it for "verify nothing".
func CheckCA(bundle string) error {
	rest, n := []byte(bundle), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("a %q block among the certificates", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d: %w", n+1, err)
		}
		n++
	}
	if n == 0 || !utf8.ValidString(bundle) {
		return errors.New("no PEM certificate in it")
	}
	if len(strings.TrimSpace(string(rest))) > 0 {
		return errors.New("something other than PEM after the last certificate")
	}
	return nil
}

// profiles are the names and bundles of all upstream TLS profiles, sorted.
func (s State) profiles() []profile {
	all := []profile{{name: ProfilePlain}, {name: ProfileTLSSystem, tls: true}}
	for _, ca := range s.CAs {
		all = append(all, profile{name: ProfileName(true, ca), tls: true, ca: strings.TrimSpace(ca) + "\n"})
	}
	slices.SortFunc(all, func(a, b profile) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b profile) bool { return a.name == b.name })
}

type profile struct {
	name string
	tls  bool
	ca   string // PEM; "": the system's roots
}
