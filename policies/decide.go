package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Deadline is how long one question may take. An answer after it is none.
const Deadline = 50 * time.Millisecond

// traceDeadline is how long a question may take that is asked to be explained.
const traceDeadline = 2 * time.Second

// ErrDeadline says that a policy did not answer within Deadline.
var ErrDeadline = errors.New("the policy did not answer within 50 ms")

// Decide answers one question. Whatever is not a clear answer is an error: a
// fault while evaluating, rules that contradict each other, a wrong type, no
// answer within Deadline. An error is never a denial.
func (p *Policy) Decide(ctx context.Context, in *Input) (Decision, error) {
	answer, err := p.ask(ctx, in, nil)
	if err != nil {
		return Decision{}, fmt.Errorf("policy %s: %w", p.revision, err)
	}
	d, err := read(answer)
	if err != nil {
		return Decision{}, fmt.Errorf("policy %s: %w", p.revision, err)
	}
	return d, nil
}

// ask evaluates data.arbiter.decision; tracer may be nil.
func (p *Policy) ask(ctx context.Context, in *Input, tracer topdown.QueryTracer) (ast.Object, error) {
	began, deadline := time.Now(), Deadline
	if tracer != nil { // for people, who can wait
		deadline = traceDeadline
	}
	input, err := in.term(&p.reads)
	if err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	cancel := topdown.NewCancel()
	timer := time.AfterFunc(deadline, cancel.Cancel)
	defer timer.Stop()

	query := topdown.NewQuery(p.query).WithCompiler(p.compiler).WithStore(p.store).WithTransaction(p.txn).
		WithInput(input).WithCancel(cancel).WithStrictBuiltinErrors(true).
		WithTime(in.Time).WithSeed(noRandom{})
	if tracer != nil {
		query = query.WithQueryTracer(tracer).WithIndexing(false).WithEarlyExit(false)
	} else {
		query = query.WithIndexing(true).WithEarlyExit(true)
	}
	var answer ast.Value
	err = query.Iter(ctx, func(found topdown.QueryResult) error {
		for _, term := range found {
			answer = term.Value
		}
		return nil
	})
	switch {
	case topdown.IsCancel(err), time.Since(began) > deadline:
		return nil, ErrDeadline
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	object, ok := answer.(ast.Object)
	if !ok {
		return nil, errors.New("data.arbiter.decision is undefined")
	}
	return object, nil
}

// noRandom is where nothing random comes from.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, errors.New("a policy has no randomness") }
