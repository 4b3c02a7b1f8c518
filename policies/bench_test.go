package policies

import (
	"fmt"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// narrowedCall is the question that is asked most: a tool, by a token that was
// narrowed to it.
func narrowedCall() *Input {
	return &Input{
		Principal: Principal{
			Principal: identity.Principal{Kind: identity.KindAccessToken, Subject: "0b5f3c52-8d63-4f7e-9a53-0c7a9d4c1d11"},
			Scopes:    []string{"mcp:connect", "tools:call:echo"}, Narrowed: true,
		},
		Server: &Server{Name: "demo"}, Transport: "mcp", Action: ActionCall,
		Call:    &Call{Method: "tools/call", Tool: "echo", Arguments: []byte(`{"text":"hello"}`), ProtocolVersion: "2025-11-25"},
		Request: Request{Method: "POST", Path: "/servers/x/mcp", Host: "localhost", Source: "127.0.0.1"},
		Time:    time.Unix(1, 0),
	}
}

// BenchmarkDecide has the figures of docs/decisions/0019-decision-cache.md.
func BenchmarkDecide(b *testing.B) {
	p := compiled(b, Standard())
	for name, decide := range map[string]func(*Input) (Decision, error){
		"remembered": func(in *Input) (Decision, error) { return p.Decide(b.Context(), in) },
		"evaluated":  func(in *Input) (Decision, error) { return p.evaluate(b.Context(), in) },
		"in vain": func(in *Input) (Decision, error) { // what looking and keeping costs more
			in.Principal.Subject = fmt.Sprint(time.Now().UnixNano())
			return p.Decide(b.Context(), in)
		},
	} {
		b.Run(name, func(b *testing.B) {
			in := narrowedCall()
			b.ReportAllocs()
			for b.Loop() {
				if d, err := decide(in); err != nil || !d.Allow {
					b.Fatal(d, err)
				}
			}
		})
	}
}
