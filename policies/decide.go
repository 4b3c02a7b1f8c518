package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Decide answers one question. Whatever is not a clear answer is an error: a
// fault while evaluating, rules that contradict each other, a wrong type, no
// answer within Deadline. An error is never a denial, and never remembered. The
// Decision may be another caller's too: do not change what it points to.
func (p *Policy) Decide(ctx context.Context, in *Input) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	var k key
	remember, err := in.key(&k, p.reads)
	if err == nil && remember {
		if d, found := p.cache.find(k.bytes()); found {
			return d, nil
		}
	}
	d, err := p.evaluate(ctx, in)
	if err != nil {
		return Decision{}, fmt.Errorf("policy %s: %w", p.revision, told(err))
	}
	if remember {
		p.cache.keep(k.bytes(), d)
	}
	return d, nil
}

// evaluate asks the rules.
func (p *Policy) evaluate(ctx context.Context, in *Input) (Decision, error) {
	answer, err := p.run(ctx, in, p.question, p.within, nil)
	if err != nil {
		return Decision{}, err
	}
	return read(said(answer).member)
}

// ask evaluates data.arbiter.decision for people, who can wait; tracer sees the
// steps, and may be nil.
func (p *Policy) ask(ctx context.Context, in *Input, tracer topdown.QueryTracer) (ast.Object, error) {
	answer, err := p.run(ctx, in, p.decision, patience, tracer)
	if err != nil {
		return nil, err
	}
	object, ok := answer["decision"].Value.(ast.Object)
	if !ok {
		return nil, errors.New("data.arbiter.decision is not an object")
	}
	return object, nil
}

// run evaluates a query that has one answer.
func (p *Policy) run(ctx context.Context, in *Input, query ast.Body, within time.Duration, tracer topdown.QueryTracer) (topdown.QueryResult, error) {
	input, err := in.term(&p.reads)
	if err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	end := newDeadline(within)
	q := topdown.NewQuery(query).WithCompiler(p.compiler).WithStore(p.store).WithTransaction(p.txn).
		WithInput(input).WithCancel(end).WithMetrics(metrics.NoOp()).WithStrictBuiltinErrors(true).
		WithTime(in.Time).WithSeed(noRandom{})
	if tracer != nil { // sees rules that an index or the first answer would spare
		q = q.WithQueryTracer(tracer).WithIndexing(false).WithEarlyExit(false)
	}
	var answer topdown.QueryResult
	err = q.Iter(ctx, func(found topdown.QueryResult) error {
		answer = found
		return nil
	})
	if over := end.stop(ctx); over != nil {
		return nil, over
	}
	if err == nil && answer == nil {
		err = errors.New("data.arbiter.decision is undefined")
	}
	return answer, err
}

// noRandom is where nothing random comes from.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, errors.New("a policy has no randomness") }
