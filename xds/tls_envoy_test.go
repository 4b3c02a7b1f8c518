package xds_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/xds"
)

// publish sets a state and waits until Envoy runs it.
func (g *gateway) publish(t *testing.T, edit func(*xds.State)) error {
	t.Helper()
	state := g.state
	edit(&state)
	if err := g.server.SetEnvoy(state); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return g.server.Applied(ctx, 0)
}

// TestEnvoyVerifiesUpstreams holds each profile to its authority and each
// request to the name that Check gave.
func TestEnvoyVerifiesUpstreams(t *testing.T) {
	g := startGateway(t, nil)
	own := newAuthority(t)
	system := newTLSUpstream(t, g.authority, "system.example", answerJSON(`{"of":"system"}`))
	private := newTLSUpstream(t, own, "private.example", answerJSON(`{"of":"private"}`))
	address := newTLSUpstream(t, own, "127.0.0.1", answerJSON(`{"of":"address"}`))
	profile := xds.ProfileName(true, own.pem)

	to := func(up *upstream, cluster, host string) string {
		target := toURL(up.URL)
		target.cluster = cluster
		if host != "" {
			target.host = host
		}
		return g.route(target)
	}
	c := g.client(true)
	early := to(private, profile, "private.example")
	wantError(t, g.do(t, c, "POST", "/servers/"+early+"/mcp", `{}`), 503, -31503, ``)
	if err := g.publish(t, func(s *xds.State) { s.CAs = []string{own.pem} }); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name          string
		up            *upstream
		cluster, host string
		want          string // body; "" for 502
	}{
		{"system roots", system, "tls-system", "system.example", `{"of":"system"}`},
		{"system roots, port in the host", system, "tls-system", "system.example:8443", `{"of":"system"}`},
		{"own authority, right after the confirmation", private, profile, "private.example", `{"of":"private"}`},
		{"own authority, an address", address, profile, "", `{"of":"address"}`},
		{"another name", private, profile, "other.example", ""},
		{"an address that the certificate does not have", private, profile, "127.0.0.1", ""},
		{"a name below", private, profile, "a.private.example", ""},
		{"the system's server with the own authority", system, profile, "system.example", ""},
		{"the own server with the system's roots", private, "tls-system", "private.example", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := g.do(t, c, "POST", "/servers/"+to(test.up, test.cluster, test.host)+"/mcp", `{}`)
			if test.want == "" {
				wantError(t, got, 502, -31502, ``)
			} else if got.status != 200 || got.body != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
	if err := g.publish(t, func(*xds.State) {}); err != nil { // the profile is gone again
		t.Fatal(err)
	}
	wantError(t, g.do(t, c, "POST", "/servers/"+early+"/mcp", `{}`), 503, -31503, ``)
}

// TestEnvoyUpstreamSessionDoesNotVouch is the attack of an upstream that hands
// out TLS sessions under keys that it shares with an impostor: the impostor has
// no certificate for the name it is asked for, but could resume.
func TestEnvoyUpstreamSessionDoesNotVouch(t *testing.T) {
	g := startGateway(t, nil)
	honest := newUnstartedUpstream(answerJSON(`{}`))
	impostor := newUnstartedUpstream(answerJSON(`{"stolen":true}`))
	var shared [32]byte
	if _, err := rand.Read(shared[:]); err != nil {
		t.Fatal(err)
	}
	for up, name := range map[*upstream]string{honest: "attacker.example", impostor: "attacker.example"} {
		up.TLS = g.authority.serverConfig(t, name)
		up.TLS.SetSessionTicketKeys([][32]byte{shared})
		up.StartTLS()
		t.Cleanup(up.close)
	}
	to := toURL(honest.URL)
	to.cluster, to.host = "tls-system", "attacker.example"
	first := g.route(to)
	to = toURL(impostor.URL)
	to.cluster, to.host = "tls-system", "bank.example"
	second := g.route(to)
	for range 4 { // both workers
		c := g.client(false)
		if got := g.do(t, c, "POST", "/servers/"+first+"/mcp", `{}`); got.status != 200 {
			t.Fatalf("got %+v", got)
		}
		if last, _ := honest.seen(); last.TLS.DidResume {
			t.Error("Envoy has resumed a session")
		}
		honest.CloseClientConnections()
		wantError(t, g.do(t, c, "POST", "/servers/"+second+"/mcp", `{}`), 502, -31502, ``)
	}
}

// TestEnvoyServesTLS13 holds the client side: versions, protocols, no resumption.
func TestEnvoyServesTLS13(t *testing.T) {
	g := startGateway(t, nil)
	dial := func(config *tls.Config) (tls.ConnectionState, error) {
		config.RootCAs, config.ServerName = g.authority.pool(), "localhost"
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", g.place.Listen.String(), config)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return tls.ConnectionState{}, err
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			return tls.ConnectionState{}, err
		}
		_, err = conn.Read(make([]byte, 1)) // session tickets come before the answer
		return conn.ConnectionState(), err
	}
	if _, err := dial(&tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
	sessions := tls.NewLRUClientSessionCache(8)
	for range 3 {
		if state, err := dial(&tls.Config{ClientSessionCache: sessions}); err != nil || state.DidResume {
			t.Errorf("resumed %v: %v", state.DidResume, err)
		}
	}
	if state, err := dial(&tls.Config{NextProtos: []string{"http/1.1"}}); err != nil || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("protocol %q: %v", state.NegotiatedProtocol, err)
	}
	if err := g.publish(t, func(s *xds.State) { s.TLS12 = true }); err != nil {
		t.Fatal(err)
	}
	if state, err := dial(&tls.Config{MaxVersion: tls.VersionTLS12, ClientSessionCache: sessions}); err != nil || state.Version != tls.VersionTLS12 {
		t.Errorf("TLS 1.2 by the switch: %v", err)
	}
}

// TestEnvoySwapsItsCertificate renews the server's certificate under traffic.
func TestEnvoySwapsItsCertificate(t *testing.T) {
	g := startGateway(t, nil)
	serial := func() string {
		conn, err := tls.Dial("tcp", g.place.Listen.String(), &tls.Config{RootCAs: g.authority.pool(), ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	certificate, key := g.authority.issue(t, "localhost")
	if err := g.publish(t, func(s *xds.State) { s.Certificate, s.Key = certificate, secret.New(key) }); err != nil {
		t.Fatal(err)
	}
	if after := serial(); after == before {
		t.Error("the old certificate is still served after Applied")
	}
}

// TestEnvoyRefusalIsReported holds that a configuration that Envoy refuses is
// an error of Applied in Envoy's words, that the last good one stays, and that
// a good one heals it.
func TestEnvoyRefusalIsReported(t *testing.T) {
	g := startGateway(t, nil)
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader) // Go takes it, Envoy does not
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := g.authority.sign(t, "localhost", weak)
	var refusal *xds.NotAppliedError
	for range 2 {
		err := g.publish(t, func(s *xds.State) { s.Certificate, s.Key = certificate, secret.New(key) })
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Detail, "certificate") || refusal.Node != "envoy-test" {
			t.Errorf("Applied says %v", err)
		}
	}
	if got := g.do(t, g.client(true), "GET", "/", ``); got.status != 404 {
		t.Errorf("the last good configuration is gone: %+v", got)
	}
	if replicas := g.server.Replicas(); len(replicas) != 1 || replicas[0].Current || replicas[0].Error == "" {
		t.Errorf("replicas: %+v", replicas)
	}
	if err := g.publish(t, func(*xds.State) {}); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	if replicas := g.server.Replicas(); len(replicas) != 1 || !replicas[0].Current || replicas[0].Error != "" {
		t.Errorf("replicas: %+v", replicas)
	}
}

// TestEnvoyReconnects loses the xDS server: traffic goes on, and a change that
// is made meanwhile arrives after its return.
func TestEnvoyReconnects(t *testing.T) {
	g := startGateway(t, nil)
	up := newUpstream(t, answerJSON(`{}`))
	server := g.route(toURL(up.URL))
	g.stopControl()
	if got := g.do(t, g.client(true), "POST", "/servers/"+server+"/rpc", `{}`); got.status != 200 {
		t.Errorf("without control: %+v", got)
	}
	own := newAuthority(t)
	g.state.CAs = []string{own.pem}
	g.startControl()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for len(g.server.Replicas()) == 0 {
		select {
		case <-ctx.Done():
			t.Fatal("envoy has not come back")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := g.server.Applied(ctx, 0); err != nil {
		t.Fatal(err)
	}
	private := newTLSUpstream(t, own, "private.example", answerJSON(`{}`))
	to := toURL(private.URL)
	to.cluster, to.host = xds.ProfileName(true, own.pem), "private.example"
	if got := g.do(t, g.client(true), "POST", "/servers/"+g.route(to)+"/rpc", `{}`); got.status != 200 {
		t.Errorf("after control's return: %+v", got)
	}
}

// TestEnvoyPartlyRefused holds that what was good in a refused message is not
// lost: it arrives when the bad part is mended, though it did not change.
func TestEnvoyPartlyRefused(t *testing.T) {
	g := startGateway(t, nil)
	own := newAuthority(t)
	err := g.publish(t, func(s *xds.State) { s.CAs, s.SystemRoots = []string{own.pem}, "/nonexistent/roots.pem" })
	var refusal *xds.NotAppliedError
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Detail, "/nonexistent/roots.pem") {
		t.Errorf("Applied says %v", err)
	}
	if err := g.publish(t, func(s *xds.State) { s.CAs = []string{own.pem} }); err != nil {
		t.Fatal(err)
	}
	private := newTLSUpstream(t, own, "private.example", answerJSON(`{}`))
	to := toURL(private.URL)
	to.cluster, to.host = xds.ProfileName(true, own.pem), "private.example"
	if got := g.do(t, g.client(true), "POST", "/servers/"+g.route(to)+"/rpc", `{}`); got.status != 200 {
		t.Errorf("got %+v", got)
	}
}
