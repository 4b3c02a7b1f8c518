package policies

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// trace follows one evaluation and keeps, of each rule, whether it held and
// where it failed. With withheld it also notes the first expression that asks
// for the caller's arguments. It implements topdown.QueryTracer.
type trace struct {
	rules    map[*ast.Rule]*tried
	queries  map[uint64]*tried // by the query that evaluates the rule's body
	order    []*tried          // of those that held
	withheld bool
	touches  map[ast.Node]bool
	touched  *Place
}

// tried is a rule that was evaluated at least once.
type tried struct {
	rule   *ast.Rule
	held   bool
	failed *ast.Expr // the furthest; nil: it gave false, or no failure was seen
}

func newTrace(withheld bool) *trace {
	return &trace{
		rules: map[*ast.Rule]*tried{}, queries: map[uint64]*tried{},
		withheld: withheld, touches: map[ast.Node]bool{},
	}
}

// Enabled implements topdown.QueryTracer.
func (*trace) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*trace) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer.
func (t *trace) TraceEvent(event topdown.Event) {
	switch node := event.Node.(type) {
	case *ast.Rule:
		switch event.Op {
		case topdown.EnterOp:
			t.enter(node, event.QueryID)
		case topdown.ExitOp:
			t.exit(node, &event)
		}
	case *ast.Expr:
		switch event.Op {
		case topdown.EvalOp:
			t.look(node, node, node.Location)
		case topdown.FailOp:
			t.fail(node, event.QueryID)
		}
	}
}

func (t *trace) enter(rule *ast.Rule, query uint64) {
	t.look(rule.Head, rule.Head, rule.Location)
	known := t.rules[rule]
	if known == nil {
		known = &tried{rule: rule}
		t.rules[rule] = known
	}
	if len(t.queries) < queriesMost {
		t.queries[query] = known
	}
}

// exit notes a rule that holds: its body does, and its value is not false.
func (t *trace) exit(rule *ast.Rule, event *topdown.Event) {
	known := t.rules[rule]
	if known == nil || known.held {
		return
	}
	if value := rule.Head.Value; value != nil && event.Plug(value).Value.Compare(ast.Boolean(false)) == 0 {
		known.failed = nil
		return
	}
	known.held = true
	t.order = append(t.order, known)
}

func (t *trace) fail(expr *ast.Expr, query uint64) {
	known := t.queries[query]
	if known != nil && (known.failed == nil || expr.Index > known.failed.Index) {
		known.failed = expr
	}
}

// look notes whether a node, which is about to be evaluated, asks for what is
// withheld. key is the same for the same node.
func (t *trace) look(key, node ast.Node, at *ast.Location) {
	if !t.withheld || t.touched != nil {
		return
	}
	touches, known := t.touches[key]
	if !known {
		touches = asksForArguments(node)
		t.touches[key] = touches
	}
	if touches {
		place := placeOf(at)
		t.touched = &place
	}
}

// asksForArguments reports whether anything in a node can read the caller's
// arguments: a reference to them or below, to what they lie in, or one whose
// path only the evaluation knows.
func asksForArguments(node ast.Node) bool {
	var reads part
	var walk *ast.GenericVisitor
	walk = ast.NewGenericVisitor(func(x any) bool {
		switch value := x.(type) {
		case ast.Ref:
			if value.HasPrefix(ast.InputRootRef) {
				reads |= partsAt(constantPath(value[1:]))
				value = value[1:]
			}
			for _, inner := range value {
				walk.Walk(inner)
			}
			return true
		case ast.Var:
			if value.Equal(ast.InputRootDocument.Value) {
				reads |= everyPart
			}
		}
		return false
	})
	walk.Walk(node)
	return reads.has(partArguments | partParams)
}

// fired are the rules of the bundle that held. Functions hold for one caller
// and not for the next: they are left out.
func (t *trace) fired() []Fired {
	var out []Fired
	for _, known := range t.order {
		if known.rule.Location.File == decisionFile || len(known.rule.Head.Args) > 0 || known.rule.Default {
			continue
		}
		if len(out) == firedMost {
			break
		}
		out = append(out, Fired{Rule: nameOf(known.rule), Place: headOf(known.rule)})
	}
	return out
}
