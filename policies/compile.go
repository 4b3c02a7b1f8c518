package policies

import (
	"context"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// Policy is one compiled bundle. It is immutable and safe for concurrent use;
// what it remembers goes with it.
type Policy struct {
	revision string
	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction // reads, as long as the policy lives; nobody writes
	question ast.Body
	decision ast.Body // the same, for people
	reads    Reads
	texts    map[string]bool // strings of its source
	within   time.Duration   // Deadline
	cache    cache
}

// Compile checks a bundle and makes it ready to decide; its tests stay out. The
// error is a *BundleError when the bundle is at fault. A large bundle takes some
// seconds; Compile comes back when ctx is over, but what it began goes on until
// it is done.
func Compile(ctx context.Context, b Bundle) (*Policy, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	type result struct {
		policy *Policy
		err    error
	}
	done := make(chan result, 1)
	go func() {
		p, err := newPolicy(b)
		done <- result{p, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("compiling the policy: %w", ctx.Err())
	case r := <-done:
		return r.policy, r.err
	}
}

func newPolicy(b Bundle) (*Policy, error) {
	modules, err := b.modules(false)
	if err != nil {
		return nil, err
	}
	compiler, err := compile(modules)
	if err != nil {
		return nil, err
	}
	data, err := b.data()
	if err != nil {
		return nil, err
	}
	p := &Policy{
		revision: b.Revision(), compiler: compiler, store: inmem.NewFromASTObject(data),
		reads: readsOf(compiler), texts: textsOf(compiler), within: Deadline,
	}
	if p.txn, err = p.store.NewTransaction(context.Background()); err != nil {
		return nil, fmt.Errorf("opening the bundle's data: %w", err)
	}
	if p.question, err = question(compiler); err != nil {
		return nil, err
	}
	if p.decision, err = compiler.QueryCompiler().Compile(ast.MustParseBody("decision = data.arbiter.decision")); err != nil {
		return nil, fmt.Errorf("compiling data.arbiter.decision: %w", err)
	}
	return p, nil
}

// Revision is that of the bundle.
func (p *Policy) Revision() string { return p.revision }

// Reads says what the policy can read.
func (p *Policy) Reads() Reads { return p.reads }

func compile(modules map[string]*ast.Module) (*ast.Compiler, error) {
	compiler, err := newCompiler()
	if err != nil {
		return nil, err
	}
	if compiler.Compile(modules); compiler.Failed() {
		return nil, &BundleError{Faults: faultsOf("", compiler.Errors)}
	}
	return compiler, nil
}

// newCompiler is as strict with a bundle's tests as with its rules. Nothing is
// evaluated without one, so the guards stand from here on.
func newCompiler() (*ast.Compiler, error) {
	guarded()
	set, err := schemas()
	if err != nil {
		return nil, err
	}
	return ast.NewCompiler().
		WithCapabilities(capabilities()).
		WithStrict(true).
		WithSchemas(set).
		WithUseTypeCheckAnnotations(true).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStageAfterID(ast.StageCheckDeprecatedBuiltins, keepTypeErrors), nil
}
