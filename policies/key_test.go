package policies

import (
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// TestKeyTellsInputsApart: no two of these inputs, each another than the full
// one in a single point, have one key. Lengths keep texts from running into
// each other; what is absent is not what is empty.
func TestKeyTellsInputsApart(t *testing.T) {
	seen := map[string]string{}
	server := fullInput().Server // of one number
	for name, change := range map[string]func(*Input){
		"itself":                  func(*Input) {},
		"kind":                    func(in *Input) { in.Principal.Kind = "x" },
		"id":                      func(in *Input) { in.Principal.Subject = "x" },
		"id and client run on":    func(in *Input) { in.Principal.Subject, in.Principal.Client = "sc", "" },
		"name":                    func(in *Input) { in.Principal.Name = "x" },
		"principal's server":      func(in *Input) { in.Principal.Principal.Server = identity.ServerID{2} },
		"no scopes":               func(in *Input) { in.Principal.Scopes = nil },
		"not narrowed":            func(in *Input) { in.Principal.Scopes, in.Principal.Narrowed = nil, false },
		"an empty scope":          func(in *Input) { in.Principal.Scopes = []string{""} },
		"two scopes":              func(in *Input) { in.Principal.Scopes = []string{"a", "b"} },
		"two scopes in one":       func(in *Input) { in.Principal.Scopes = []string{"ab"} },
		"client":                  func(in *Input) { in.Principal.Client = "x" },
		"user":                    func(in *Input) { in.Principal.User = "x" },
		"issuer":                  func(in *Input) { in.Principal.Issuer = "x" },
		"no user, but an issuer":  func(in *Input) { in.Principal.User, in.Principal.Issuer = "", "u" },
		"claims":                  func(in *Input) { in.Principal.Claims = []byte(`{"sub":"x"}`) },
		"no claims":               func(in *Input) { in.Principal.Claims = nil },
		"no certificate":          func(in *Input) { in.Principal.Certificate = nil },
		"an empty certificate":    func(in *Input) { in.Principal.Certificate = &Certificate{} },
		"fingerprint":             func(in *Input) { in.Principal.Certificate.Fingerprint = "x" },
		"serial":                  func(in *Input) { in.Principal.Certificate.Serial = "x" },
		"certificate's issuer":    func(in *Input) { in.Principal.Certificate.Issuer = "x" },
		"certificate's URI":       func(in *Input) { in.Principal.Certificate.URI = "x" },
		"certificate's end":       func(in *Input) { in.Principal.Certificate.NotAfter = time.Unix(2, 0) },
		"no server":               func(in *Input) { in.Server = nil },
		"another record":          func(in *Input) { in.Server = fullInput().Server },
		"transport":               func(in *Input) { in.Transport = "rpc" },
		"action":                  func(in *Input) { in.Action = ActionListItem },
		"no call":                 func(in *Input) { in.Call = nil },
		"an empty call":           func(in *Input) { in.Call = &Call{} },
		"method":                  func(in *Input) { in.Call.Method = "x" },
		"tool":                    func(in *Input) { in.Call.Tool = "x" },
		"a prompt for a tool":     func(in *Input) { in.Call.Tool, in.Call.Prompt = "p", "t" },
		"resource":                func(in *Input) { in.Call.Resource = "x" },
		"a template":              func(in *Input) { in.Call.Template = "x" },
		"task":                    func(in *Input) { in.Call.Task = "x" },
		"level":                   func(in *Input) { in.Call.Level = "x" },
		"no ref":                  func(in *Input) { in.Call.Ref = nil },
		"an empty ref":            func(in *Input) { in.Call.Ref = &Ref{} },
		"ref's type":              func(in *Input) { in.Call.Ref.Type = "ref/resource" },
		"ref's name":              func(in *Input) { in.Call.Ref.Name = "x" },
		"subscriptions":           func(in *Input) { in.Call.Subscriptions = []string{"s", "s"} },
		"arguments":               func(in *Input) { in.Call.Arguments = []byte(`{"a":1}`) },
		"no arguments":            func(in *Input) { in.Call.Arguments = nil },
		"params":                  func(in *Input) { in.Call.Params = []byte(`[2]`) },
		"version":                 func(in *Input) { in.Call.ProtocolVersion = "x" },
		"a request":               func(in *Input) { in.Call.Notification = false },
		"no batch":                func(in *Input) { in.Call.Batch = false },
		"batch index":             func(in *Input) { in.Call.BatchIndex = 2 },
		"verb":                    func(in *Input) { in.Request.Method = "GET" },
		"path":                    func(in *Input) { in.Request.Path = "/x" },
		"host":                    func(in *Input) { in.Request.Host = "x" },
		"source":                  func(in *Input) { in.Request.Source = "::2" },
		"no headers":              func(in *Input) { in.Request.Headers = nil },
		"one header":              func(in *Input) { in.Request.Headers = in.Request.Headers[:1] },
		"a header's name":         func(in *Input) { in.Request.Headers = []Header{{"x-a", "1"}, {"x-b", "2"}} },
		"a header's value":        func(in *Input) { in.Request.Headers = []Header{{"x-a", "1"}, {"x-a", "3"}} },
		"headers the other way":   func(in *Input) { in.Request.Headers = []Header{{"x-a", "2"}, {"x-a", "1"}} },
		"a header that runs over": func(in *Input) { in.Request.Headers = []Header{{"x-a", "1x-a2"}} },
	} {
		in := fullInput()
		in.Server = server
		change(in)
		var k key
		if ok, err := in.key(&k, Reads{parts: everyPart &^ partTime}); !ok || err != nil {
			t.Fatalf("%s: no key (%v)", name, err)
		}
		spelled := string(k.bytes())
		if other, taken := seen[spelled]; taken {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[spelled] = name
	}
}

// TestKeyIsWhole: an input that does not fit has no key, wherever it ends.
func TestKeyIsWhole(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*Input)
	}{
		{"a long name", func(in *Input) { in.Principal.Name = strings.Repeat("a", keyMost) }},
		{"long arguments", func(in *Input) { in.Call.Arguments = []byte(`"` + strings.Repeat("a", keyMost) + `"`) }},
		{"arguments that almost fit", func(in *Input) { in.Call.Arguments = []byte(`"` + strings.Repeat("a", keyMost-60) + `"`) }},
		{"many headers", func(in *Input) { in.Request.Headers = make([]Header, keyMost) }},
		{"a long source, the last but one", func(in *Input) { in.Request.Source = strings.Repeat("a", keyMost-100) }},
	} {
		in := fullInput()
		row.change(in)
		var k key
		if ok, err := in.key(&k, Reads{parts: everyPart &^ partTime}); ok || err != nil {
			t.Errorf("%s: key of %d bytes, %v", row.name, len(k.bytes()), err)
		}
	}
}
