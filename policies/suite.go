package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// times is how long a bundle's tests may take.
type times struct{ each, all time.Duration }

var suiteTimes = times{each: 5 * time.Second, all: 60 * time.Second}

// outputMost is what is kept of what one test prints, in bytes.
const outputMost = 4096

// Report is what a bundle's own tests said, sorted by file and line.
type Report struct {
	Passed []TestResult `json:"passed"`
	Failed []TestResult `json:"failed"`
	// Coverage is nil unless it was asked for.
	Coverage *Coverage `json:"coverage,omitempty"`
}

// TestResult is one rule whose name begins with test_ or todo_test_.
type TestResult struct {
	Package string `json:"package"` // data.policy_test
	Name    string `json:"name"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	// Message says why it failed, on one line.
	Message string `json:"message,omitempty"`
	// Output is what it printed, up to 4 KiB.
	Output string `json:"output,omitempty"`

	late bool // it did not end in time
}

// LateError is a *BundleError for nothing but time: on a machine that is less
// busy the same bundle may pass.
type LateError struct{ Bundle *BundleError }

func (e *LateError) Error() string { return e.Bundle.Error() }

// Unwrap is the *BundleError.
func (e *LateError) Unwrap() error { return e.Bundle }

// Coverage is how much of the rules, tests apart, was evaluated by a test.
type Coverage struct {
	Percent float64 `json:"percent"` // of the lines that can be
	// Uncovered are the lines that no test came to, by file.
	Uncovered map[string][]int `json:"uncovered,omitempty"`
}

// Err is nil when no test failed, else a *BundleError with a fault for each. It
// is a *LateError when they all just did not end in time.
func (r Report) Err() error {
	if len(r.Failed) == 0 {
		return nil
	}
	faults := make([]Fault, len(r.Failed))
	for i, one := range r.Failed {
		faults[i] = Fault{File: one.File, Line: one.Line, Message: one.Name + ": " + one.Message}
	}
	bad := &BundleError{Faults: faults}
	if !slices.ContainsFunc(r.Failed, func(one TestResult) bool { return !one.late }) {
		return &LateError{bad}
	}
	return bad
}

// Test runs the bundle's own tests with what Compile and Decide allow, each for
// at most 5 s and all for 60 s. A test that is only announced (todo_test_...)
// counts as failed: what goes live was tested. The error is a *BundleError
// when the bundle does not compile, a *LateError when its tests do not end.
func Test(ctx context.Context, b Bundle) (Report, error) {
	return test(ctx, b, nil, suiteTimes)
}

// Cover is Test, with Coverage. It takes longer.
func Cover(ctx context.Context, b Bundle) (Report, error) {
	return test(ctx, b, cover.New(), suiteTimes)
}

func test(ctx context.Context, b Bundle, covered *cover.Cover, most times) (Report, error) {
	s, err := newSuite(ctx, b, most)
	if err != nil {
		return Report{}, err
	}
	all, cancel := context.WithTimeout(ctx, most.all)
	defer cancel()
	runner := tester.NewRunner().SetCompiler(s.compiler).SetModules(s.modules).SetStore(s.store).
		SetTimeout(most.each).RaiseBuiltinErrors(true).CapturePrintOutput(true)
	if covered != nil {
		runner.SetCoverageQueryTracer(covered)
	}
	results, err := runner.RunTests(all, s.txn)
	if err != nil {
		return Report{}, &BundleError{Faults: faultsOf("", err)}
	}
	report := s.collect(all, results)
	switch {
	case ctx.Err() != nil:
		return Report{}, ctx.Err()
	case all.Err() != nil: // some may never have begun
		late := Fault{File: s.firstTest, Message: fmt.Sprintf("the tests did not end within %v together", most.all)}
		return Report{}, &LateError{&BundleError{Faults: []Fault{late}}}
	}
	if covered != nil {
		report.Coverage = s.coverage(covered)
	}
	return report, nil
}

// suite is a bundle together with its tests.
type suite struct {
	compiler  *ast.Compiler
	modules   map[string]*ast.Module
	store     storage.Store
	txn       storage.Transaction
	firstTest string // a file of tests, or the question's
	most      times
}

func newSuite(ctx context.Context, b Bundle, most times) (*suite, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	out := &suite{firstTest: decisionFile, most: most}
	var err error
	if out.modules, err = b.modules(true); err != nil {
		return nil, err
	}
	for name := range out.modules {
		if strings.HasSuffix(name, testSuffix) && (out.firstTest == decisionFile || name < out.firstTest) {
			out.firstTest = name
		}
	}
	if out.compiler, err = newCompiler(); err != nil {
		return nil, err
	}
	out.compiler.WithEnablePrintStatements(true)
	data, err := b.data()
	if err != nil {
		return nil, err
	}
	out.store = inmem.NewFromASTObject(data)
	if out.txn, err = out.store.NewTransaction(ctx); err != nil {
		return nil, fmt.Errorf("opening the bundle's data: %w", err)
	}
	return out, nil
}

func (s *suite) collect(ctx context.Context, results <-chan *tester.Result) Report {
	report := Report{Passed: []TestResult{}, Failed: []TestResult{}}
	for result := range results {
		one := TestResult{Package: result.Package, Name: result.Name, Output: string(result.Output[:min(len(result.Output), outputMost)])}
		if result.Location != nil {
			one.File, one.Line = result.Location.File, result.Location.Row
		}
		if result.Pass() {
			report.Passed = append(report.Passed, one)
			continue
		}
		one.Message, one.late = s.why(ctx, result), topdown.IsCancel(result.Error)
		report.Failed = append(report.Failed, one)
	}
	for _, list := range [][]TestResult{report.Passed, report.Failed} {
		slices.SortFunc(list, func(a, b TestResult) int {
			if a.File != b.File {
				return strings.Compare(a.File, b.File)
			}
			return a.Line - b.Line
		})
	}
	return report
}

func (s *suite) why(ctx context.Context, result *tester.Result) string {
	switch {
	case result.Skip:
		return "this test is only announced; write it, or take it out"
	case topdown.IsCancel(result.Error):
		return fmt.Sprintf("this test did not end within %v", s.most.each)
	case result.Error != nil:
		return printable(result.Error.Error())
	}
	var cases []string
	for name, one := range result.SubResults.Iter {
		if one.Fail && len(one.SubResults) == 0 {
			cases = append(cases, strings.Join(name, "/"))
		}
	}
	if len(cases) > 0 {
		return printable("these cases fail: " + strings.Join(cases, ", "))
	}
	if at, found := s.failedAt(ctx, result); found {
		return printable(fmt.Sprintf("line %d does not hold: %s", at.Line, at.Text))
	}
	return "this is not true"
}

// failedAt evaluates a failed test once more to see how far it came.
func (s *suite) failedAt(ctx context.Context, result *tester.Result) (Place, bool) {
	body, err := ast.ParseBody("x = " + result.Package + "." + result.Name)
	if err != nil { // one of several of the same name, which OPA numbers
		return Place{}, false
	}
	query, err := s.compiler.QueryCompiler().Compile(body)
	if err != nil {
		return Place{}, false
	}
	seen := newTrace(false)
	cancel := topdown.NewCancel()
	defer time.AfterFunc(s.most.each, cancel.Cancel).Stop()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	_, err = topdown.NewQuery(query).WithCompiler(s.compiler).WithStore(s.store).WithTransaction(s.txn).
		WithCancel(cancel).WithQueryTracer(seen).WithIndexing(false).WithEarlyExit(false).Run(ctx)
	if err != nil {
		return Place{}, false
	}
	for rule, tried := range seen.rules {
		if rule.Location.Equal(result.Location) && !tried.held {
			return failedAt(tried), true
		}
	}
	return Place{}, false
}

// coverage leaves out what is ours and the tests themselves.
func (s *suite) coverage(covered *cover.Cover) *Coverage {
	rules := map[string]*ast.Module{}
	for name, module := range s.modules {
		if name != decisionFile && !strings.HasSuffix(name, testSuffix) {
			rules[name] = module
		}
	}
	out := &Coverage{Uncovered: map[string][]int{}}
	hit, missed := 0, 0
	report := covered.Report(rules)
	for name := range rules {
		file := report.Files[name]
		hit, missed = hit+file.CoveredLines, missed+file.NotCoveredLines
		for _, piece := range file.NotCovered {
			for line := piece.Start.Row; line <= piece.End.Row; line++ {
				out.Uncovered[name] = append(out.Uncovered[name], line)
			}
		}
		slices.Sort(out.Uncovered[name])
		out.Uncovered[name] = slices.Compact(out.Uncovered[name])
		if len(out.Uncovered[name]) == 0 {
			delete(out.Uncovered, name)
		}
	}
	if hit+missed > 0 {
		out.Percent = 100 * float64(hit) / float64(hit+missed)
	}
	return out
}
