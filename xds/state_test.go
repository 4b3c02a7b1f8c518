package xds_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/xds"
)

func TestProfileName(t *testing.T) {
	ca := string(readFile(t, "testdata/ca-one.pem"))
	tests := []struct {
		name string
		tls  bool
		ca   string
		want string
	}{
		{"in the clear", false, "", "plain"},
		{"in the clear, with a bundle that is not used", false, ca, "plain"},
		{"the system's roots", true, "", "tls-system"},
		{"only white space", true, " \n", "tls-system"},
		{"a bundle", true, ca, "tls-f19e1a9b220a4099"},
		{"the same with more white space", true, "\n" + ca + "\n", "tls-f19e1a9b220a4099"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := xds.ProfileName(test.tls, test.ca); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestTranslateRefuses lists states that must never reach an Envoy.
func TestTranslateRefuses(t *testing.T) {
	ca := string(readFile(t, "testdata/ca-one.pem"))
	certificate, key := newAuthority(t).issue(t, "localhost")
	_, otherKey := newAuthority(t).issue(t, "localhost")
	good := xds.State{
		Certificate: certificate, Key: secret.New(key), SystemRoots: "/roots.pem", CAs: []string{ca},
	}
	at := xds.Place{Listen: netip.MustParseAddrPort("127.0.0.1:8443"), Extauthz: "/extauthz.sock"}
	if _, err := xds.Translate(good, at); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		edit func(*xds.State)
	}{
		{"no certificate", func(s *xds.State) { s.Certificate = "" }},
		{"no key", func(s *xds.State) { s.Key = secret.Text{} }},
		{"half a certificate", func(s *xds.State) { s.Certificate = certificate[:len(certificate)/2] }},
		{"another key", func(s *xds.State) { s.Key = secret.New(otherKey) }},
		{"no system roots", func(s *xds.State) { s.SystemRoots = "" }},
		{"not UTF-8", func(s *xds.State) { s.SystemRoots = "\xff" }},
		{"an empty bundle, which Envoy would take for verify nothing", func(s *xds.State) { s.CAs = []string{""} }},
		{"a bundle that is no PEM", func(s *xds.State) { s.CAs = []string{"x"} }},
		{"a key in the bundle", func(s *xds.State) { s.CAs = []string{encode("PRIVATE KEY", []byte{1})} }},
		{"a certificate that is none", func(s *xds.State) { s.CAs = []string{encode("CERTIFICATE", []byte{1})} }},
		{"something after the certificates", func(s *xds.State) { s.CAs = []string{ca + "x"} }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			state := good
			test.edit(&state)
			if _, err := xds.Translate(state, at); !errors.Is(err, xds.ErrState) {
				t.Errorf("got %v", err)
			}
		})
	}
}
