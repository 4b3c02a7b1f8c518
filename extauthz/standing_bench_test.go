package extauthz

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/policies"
)

// usual is what a principal of a server asks for.
func usual(server identity.ServerID, principal string) *decision {
	d := askedOf(policies.Call{Method: "tools/call", Tool: "search", Arguments: jsontext.Value(`{"query":"a","limit":10}`), ProtocolVersion: "2025-11-25"})
	d.call.version = "2025-11-25"
	d.input.Principal = policies.Principal{Principal: identity.Principal{
		Kind: identity.KindAccessToken, Subject: principal, Name: "build agent", Server: server,
	}, Narrowed: true, Scopes: []string{"mcp:connect", "tools:call"}}
	d.input.Request = policies.Request{Method: "POST", Path: "/servers/" + server.String() + "/mcp", Host: "localhost:8443", Source: "192.0.2.1"}
	return d
}

func written(b *testing.B, d *decision) string {
	text, err := d.question()
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// BenchmarkStreamsDecidedAgain is what a change of policy costs while 20,000
// streams live, each of another principal: nothing is remembered.
func BenchmarkStreamsDecidedAgain(b *testing.B) {
	const streams, servers = 20_000, 1000
	s := &Server{streams: newStreams(), revoked: revocation.NewFollower(revocation.FollowerConfig{})}
	snap := &Snapshot{gateway: &gateway{}, keys: &keys{}, loaded: true}
	var owned [256]bool
	ids := make([]identity.ServerID, servers)
	for i := range ids {
		ids[i] = identity.NewServerID()
		srv := &server{id: ids[i], enabled: true}
		srv.seen.ID, srv.seen.Name = ids[i], "demo"
		snap.servers.set(ids[i], srv, &owned)
	}
	for i := range streams {
		id := ids[i%servers]
		s.streams.add(func() {}, opened{id, written(b, usual(id, fmt.Sprint("token-", i)))}, tokenKey(fmt.Sprint(i)), serverKey(id))
	}
	for b.Loop() {
		policy, err := policies.Compile(context.Background(), policies.Standard())
		if err != nil {
			b.Fatal(err)
		}
		snap.policy = policy
		s.snapshot.Store(snap)
		if fallen := s.fallen(s.streams.every()); len(fallen) > 0 {
			b.Fatalf("%d may not go on", len(fallen))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*streams), "ns/stream")
}

// BenchmarkQuestion is what carrying the question along costs: written by Check,
// read by Guard.
func BenchmarkQuestion(b *testing.B) {
	d := usual(identity.NewServerID(), "token-abcdefgh")
	text := written(b, d)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			written(b, d)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parseQuestion(text); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(text)), "bytes")
	})
}
