package policies

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Place is where something stands in a bundle: a line of a file, from 1, and
// what is written there, on one line and not longer than a denial's text.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text,omitempty"`
}

// Explanation says why a policy decides as it does.
type Explanation struct {
	// Decision is the zero Decision where Fault or NotRecorded is set.
	Decision Decision `json:"-"`
	// Fault is what kept the policy from deciding, and where.
	Fault *Fault `json:"fault,omitempty"`
	// NotRecorded says that the answer depends on values that were not kept.
	// Touched is the first expression that asks for one; nothing else is set.
	NotRecorded bool   `json:"not_recorded,omitempty"`
	Touched     *Place `json:"touched,omitempty"`
	// Fired are the rules that hold, in the order in which they were reached.
	Fired []Fired `json:"fired,omitempty"`
	// Missing is what would have allowed it: each rule for allow that does not
	// hold, where allow is not true. Decision.Scopes may say more.
	Missing []Missing `json:"missing,omitempty"`
}

// Fired is a rule that holds.
type Fired struct {
	Rule string `json:"rule"` // data.policy.deny
	Place
}

// Missing is a rule that does not hold, and the expression that it failed at:
// the one that is furthest down in its body.
type Missing struct {
	Rule   string `json:"rule"` // data.policy.allow
	Place         // of the rule
	Failed Place  `json:"failed"`
	// Because are the rules that Failed asks for and that do not hold either.
	Because []Missing `json:"because,omitempty"`
}

// Most of what an explanation holds.
const (
	firedMost   = 200
	missingMost = 100
	becauseMost = 6       // levels
	queriesMost = 100_000 // bodies of rules that are followed
)

var allowRef = ast.MustParseRef("data.policy.allow")

// Explain decides again, with every rule evaluated, and tells what happened.
// recorded says that the call's arguments and params are in the input as they
// were sent; without it an evaluation that asks for one of them is answered
// with NotRecorded and never guessed. The error is one of the input or of ctx,
// never of the policy: that is a Fault.
func (p *Policy) Explain(ctx context.Context, in *Input, recorded bool) (Explanation, error) {
	seen := newTrace(!recorded)
	if !recorded {
		in = in.withheld()
	}
	answer, d, fault := p.follow(ctx, in, seen)
	switch {
	case ctx.Err() != nil:
		return Explanation{}, ctx.Err()
	case seen.touched != nil:
		return Explanation{NotRecorded: true, Touched: seen.touched}, nil
	}
	out := Explanation{Decision: d, Fault: fault, Fired: seen.fired()}
	if fault == nil && member(answer, "allow") != ast.Boolean(true) {
		out.Missing = p.missing(seen)
	}
	return out, nil
}

// follow decides while seen looks on.
func (p *Policy) follow(ctx context.Context, in *Input, seen *trace) (ast.Object, Decision, *Fault) {
	answer, err := p.ask(ctx, in, seen)
	if err != nil {
		return nil, Decision{}, faultOf(err)
	}
	d, err := read(answerOf(answer))
	if err != nil {
		return nil, Decision{}, &Fault{File: decisionFile, Message: err.Error()}
	}
	return answer, d, nil
}

// DecideWithout decides on an input whose arguments and params are not at
// hand; those in it are left aside. It knows the decision only where no
// evaluated expression asks for them: then Decide gives the same one, whatever
// they are. It may take forty times as long as Decide.
func (p *Policy) DecideWithout(ctx context.Context, in *Input) (d Decision, known bool, err error) {
	if !p.reads.Arguments {
		d, err = p.Decide(ctx, in)
		return d, err == nil, err
	}
	seen := newTrace(true)
	answer, err := p.ask(ctx, in.withheld(), seen)
	if seen.touched != nil {
		return Decision{}, false, nil
	}
	if err != nil { // of a rule that Decide may never come to: nothing is known
		return Decision{}, false, err
	}
	d, err = read(answerOf(answer))
	return d, err == nil, err
}

// withheld is the input without what a caller's arguments hold.
func (in *Input) withheld() *Input {
	if in.Call == nil {
		return in
	}
	out, call := *in, *in.Call
	call.Arguments, call.Params = nil, nil
	out.Call = &call
	return &out
}

// faultOf says where an evaluation ended, and why as far as no value that the
// rules worked on stands in it.
func faultOf(err error) *Fault {
	inPolicy, ok := errors.AsType[*topdown.Error](err)
	if !ok {
		return &Fault{File: decisionFile, Message: err.Error()}
	}
	out := &Fault{File: decisionFile, Message: withoutGiven(inPolicy)}
	if at := inPolicy.Location; at != nil && at.File != "" {
		out.File, out.Line = at.File, at.Row
	}
	return out
}

// missing tells of each rule for allow why it does not hold.
func (p *Policy) missing(seen *trace) []Missing {
	told := map[*ast.Rule]bool{}
	return p.unmet(seen, p.compiler.GetRulesExact(allowRef), told, 0)
}

// unmet takes the rules, and their else branches, that were tried in vain.
func (p *Policy) unmet(seen *trace, rules []*ast.Rule, told map[*ast.Rule]bool, depth int) []Missing {
	var out []Missing
	for _, rule := range rules {
		for ; rule != nil; rule = rule.Else {
			tried := seen.rules[rule]
			if tried == nil || tried.held || told[rule] || rule.Default || len(rule.Head.Args) > 0 || len(told) >= missingMost {
				continue
			}
			told[rule] = true
			one := Missing{Rule: nameOf(rule), Place: headOf(rule), Failed: failedAt(tried)}
			if tried.failed != nil && !tried.failed.Negated && depth < becauseMost {
				one.Because = p.unmet(seen, p.asked(tried.failed), told, depth+1)
			}
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Missing) int {
		if byFile := strings.Compare(a.File, b.File); byFile != 0 {
			return byFile
		}
		return a.Line - b.Line
	})
	return out
}

// asked are the rules that an expression refers to.
func (p *Policy) asked(expr *ast.Expr) []*ast.Rule {
	var out []*ast.Rule
	ast.WalkRefs(expr, func(ref ast.Ref) bool {
		if ref.HasPrefix(ast.DefaultRootRef) {
			out = append(out, p.compiler.GetRulesForVirtualDocument(ref.ConstantPrefix())...)
		}
		return false
	})
	return out
}
