package policies

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// compiled has all the time that a busy machine takes.
func compiled(t interface {
	Helper()
	Fatalf(string, ...any)
}, b Bundle,
) *Policy {
	t.Helper()
	p, err := newPolicy(b)
	if err != nil {
		t.Fatalf("compiling: %v\n%s", err, b.Files["policy.rego"])
	}
	p.within = time.Minute
	return p
}

// TestConditionsCompile holds that the random policies are made of what they
// should be made of.
func TestConditionsCompile(t *testing.T) {
	for _, condition := range conditions {
		source := policyHead + "allow if {\n" + strings.NewReplacer("P", "input.call.tool", "W", `"a"`).Replace(condition) + "\n}\n"
		if _, err := newPolicy(Bundle{Files: map[string][]byte{"policy.rego": []byte(source)}}); err != nil {
			t.Errorf("%s: %v", condition, err)
		}
	}
}

// same compares what was said, errors by that there is one.
func same(a Decision, errA error, b Decision, errB error) bool {
	return (errA == nil) == (errB == nil) && reflect.DeepEqual(a, b)
}

// TestRememberedDecisionIsTheEvaluatedOne asks policies made to read whatever
// they can, many questions that differ in little, each of them twice, with
// policies that differ in data only beside each other.
func TestRememberedDecisionIsTheEvaluatedOne(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		asked := []*Policy{compiled(t, anyPolicy(t))}
		other := anyPolicy(t)
		other.Files["policy.rego"] = []byte(policyHead + "allow if input.call.tool in data.names\n")
		asked = append(asked, compiled(t, other))
		for range 15 {
			in := anyInput(t)
			for _, p := range asked {
				want, wantErr := p.evaluate(t.Context(), in)
				for range 2 {
					if got, err := p.Decide(t.Context(), in); !same(got, err, want, wantErr) {
						t.Fatalf("remembered %+v, %v; evaluated %+v, %v", got, err, want, wantErr)
					}
				}
				if _, ok := rememberedFor(p, in); ok {
					found++
				}
			}
		}
	})
	if found == 0 {
		t.Error("nothing was ever remembered")
	}
}

func rememberedFor(p *Policy, in *Input) (Decision, bool) {
	var k key
	if ok, err := in.key(&k, p.reads); !ok || err != nil {
		return Decision{}, false
	}
	return p.cache.find(k.bytes())
}

// TestReadsIsSound holds that what a policy is said not to read changes
// nothing, neither when it is left out of the input nor when it is another.
func TestReadsIsSound(t *testing.T) {
	unread := 0
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, anyPolicy(t))
		seesAll := &Policy{compiler: p.compiler, store: p.store, txn: p.txn, question: p.question, reads: Reads{parts: everyPart}, within: time.Minute}
		in := anyInput(t)
		want, wantErr := p.evaluate(t.Context(), in)
		changed := mixed(in, anyInput(t), p.reads.parts)
		if p.reads.parts != everyPart {
			unread++
		}
		for name, in := range map[string]*Input{"whole": in, "changed": changed} {
			if got, err := seesAll.evaluate(t.Context(), in); !same(got, err, want, wantErr) {
				t.Fatalf("%s input: %+v, %v instead of %+v, %v", name, got, err, want, wantErr)
			}
		}
	})
	if unread == 0 {
		t.Error("every policy read everything")
	}
}

// mixed has what can be read of one input, and everything else of another.
func mixed(in, other *Input, reads part) *Input {
	out := *in
	pick := func(p part, take func()) {
		if !reads.has(p) {
			take()
		}
	}
	pick(partKind, func() { out.Principal.Kind = other.Principal.Kind })
	pick(partID, func() { out.Principal.Subject = other.Principal.Subject })
	pick(partName, func() { out.Principal.Name = other.Principal.Name })
	pick(partPrincipalServer, func() { out.Principal.Principal.Server = other.Principal.Principal.Server })
	pick(partScopes, func() {
		out.Principal.Scopes, out.Principal.Narrowed = other.Principal.Scopes, other.Principal.Narrowed
	})
	pick(partClient, func() { out.Principal.Client = other.Principal.Client })
	pick(partUser, func() { out.Principal.User = other.Principal.User })
	pick(partIssuer, func() { out.Principal.Issuer = other.Principal.Issuer })
	pick(partClaims, func() { out.Principal.Claims = other.Principal.Claims })
	pick(partCertificate, func() { out.Principal.Certificate = other.Principal.Certificate })
	pick(partServer, func() { out.Server = other.Server })
	pick(partTransport, func() { out.Transport = other.Transport })
	pick(partAction, func() { out.Action = other.Action })
	pick(partCall, func() { out.Call = other.Call })
	if in.Call != nil && other.Call != nil && reads.has(partCall) {
		out.Call = mixedCall(in.Call, other.Call, pick)
	}
	pick(partVerb, func() { out.Request.Method = other.Request.Method })
	pick(partPath, func() { out.Request.Path = other.Request.Path })
	pick(partHost, func() { out.Request.Host = other.Request.Host })
	pick(partSource, func() { out.Request.Source = other.Request.Source })
	pick(partHeaders, func() { out.Request.Headers = other.Request.Headers })
	pick(partTime, func() { out.Time = other.Time })
	return &out
}

func mixedCall(in, other *Call, pick func(part, func())) *Call {
	out := *in
	pick(partMethod, func() { out.Method = other.Method })
	pick(partTool, func() { out.Tool = other.Tool })
	pick(partPrompt, func() { out.Prompt = other.Prompt })
	pick(partResource, func() { out.Resource = other.Resource })
	pick(partTemplate, func() { out.Template = other.Template })
	pick(partTask, func() { out.Task = other.Task })
	pick(partLevel, func() { out.Level = other.Level })
	pick(partRef, func() { out.Ref = other.Ref })
	pick(partSubscriptions, func() { out.Subscriptions = other.Subscriptions })
	pick(partArguments, func() { out.Arguments = other.Arguments })
	pick(partParams, func() { out.Params = other.Params })
	pick(partVersion, func() { out.ProtocolVersion = other.ProtocolVersion })
	pick(partNotification, func() { out.Notification = other.Notification })
	pick(partBatch, func() { out.Batch, out.BatchIndex = other.Batch, other.BatchIndex })
	return &out
}

// TestInputsOfOneKeyAreOne holds, for whatever a policy may read, that a key
// says all that the policy would see.
func TestInputsOfOneKeyAreOne(t *testing.T) {
	equal := 0
	rapid.Check(t, func(t *rapid.T) {
		reads := Reads{parts: part(rapid.Uint64().Draw(t, "reads")) & part(rapid.Uint64().Draw(t, "sparsely")) & (everyPart &^ partTime)}
		a := anyInput(t)
		b := mixed(a, anyInput(t), part(rapid.Uint64().Draw(t, "kept"))|part(rapid.Uint64().Draw(t, "kept too")))
		var first, second key
		for _, one := range []struct {
			in *Input
			k  *key
		}{{a, &first}, {b, &second}} {
			if ok, err := one.in.key(one.k, reads); !ok || err != nil {
				t.Fatalf("no key: %v", err)
			}
		}
		if string(first.bytes()) != string(second.bytes()) {
			return
		}
		equal++
		sees, err := a.term(&reads)
		alsoSees, err2 := b.term(&reads)
		if err != nil || err2 != nil || !sees.Equal(alsoSees) {
			t.Fatalf("one key for %v and %v (%v, %v)", sees, alsoSees, err, err2)
		}
	})
	if equal == 0 {
		t.Error("no two inputs had one key")
	}
}

// TestQuestionIsTheDecision holds that the members asked for directly are those
// of data.arbiter.decision.
func TestQuestionIsTheDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, in := compiled(t, anyPolicy(t)), anyInput(t)
		want, wantErr := p.evaluate(t.Context(), in)
		object, err := p.ask(t.Context(), in, nil)
		var got Decision
		if err == nil {
			got, err = read(answerOf(object))
		}
		if !same(got, err, want, wantErr) {
			t.Fatalf("decision %+v, %v; question %+v, %v", got, err, want, wantErr)
		}
	})
}

func TestNothingIsRememberedThatMayChange(t *testing.T) {
	in := &Input{Action: ActionCall, Call: &Call{Method: "tools/call", Tool: "a", Arguments: []byte(`{"a":1}`)}}
	large := &Input{Action: ActionCall, Call: &Call{Method: "tools/call", Tool: strings.Repeat("a", keyMost)}}
	for _, row := range []struct {
		name, rule string
		in         *Input
		want       bool
	}{
		{"a tool", `allow if input.call.tool == "a"`, in, true},
		{"small arguments", `allow if input.call.arguments.a == 1`, in, true},
		{"a denial", `deny contains {"code": "a", "message": "a"} if input.call.tool`, in, true},
		{"the time", `allow if input.time > 1`, in, false},
		{"the time, by the way", `allow if count(input) > 1`, in, false},
		{"an input larger than a key", `allow if input.call.tool`, large, false},
		{"an error", `allow := input.call.tool`, in, false},
		{"contradiction", "allow if input.call.tool\nallow := false if input.call.method", in, false},
		{"a decision larger than is kept", `deny contains {"code": "a", "message": sprintf("%1200d", [x])} if some x in [1, 2, 3]`, in, false},
	} {
		p := compiled(t, Bundle{Files: map[string][]byte{"policy.rego": []byte("package policy\n" + row.rule + "\n")}})
		first, err := p.Decide(t.Context(), row.in)
		if _, got := rememberedFor(p, row.in); got != row.want {
			t.Errorf("%s: remembered is %v (%+v, %v)", row.name, got, first, err)
		}
	}
}

// TestAnotherRecordOfAServerIsAnotherKey: a server's grants change by a new
// record with the same id.
func TestAnotherRecordOfAServerIsAnotherKey(t *testing.T) {
	p := compiled(t, Standard())
	ask := func(s *Server) bool {
		d, err := p.Decide(t.Context(), &Input{Server: s, Action: ActionCall, Call: &Call{Method: "tools/call", Tool: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		return d.Allow
	}
	before := &Server{Name: "s", Grants: []byte(`[{"principal":{},"tools":["a"]}]`)}
	after := &Server{Name: "s", Grants: []byte(`[{"principal":{},"tools":["b"]}]`)}
	if !ask(before) || ask(after) || !ask(before) {
		t.Error("a grant that was taken back is still remembered")
	}
}

// TestCacheHoldsAtMostItsSlots fills it with more than it has, from many sides.
func TestCacheHoldsAtMostItsSlots(t *testing.T) {
	var c cache
	done := make(chan bool)
	for worker := range 4 {
		go func() {
			for i := range slots {
				name := fmt.Sprint(worker, "/", i)
				c.keep([]byte(name), Decision{Scopes: []string{name}})
				if d, ok := c.find([]byte(name)); ok && d.Scopes[0] != name {
					t.Errorf("%s has the decision of %s", name, d.Scopes[0])
				}
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	full := 0
	for i := range c.slots.Load() {
		if c.slots.Load()[i].Load() != nil {
			full++
		}
	}
	if full < slots/2 || full > slots {
		t.Errorf("%d of %d slots are in use", full, slots)
	}
}
