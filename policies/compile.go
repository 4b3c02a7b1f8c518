package policies

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"
)

//go:embed decision.rego
var decisionSource string

const (
	decisionFile = "arbiter/decision.rego" // named in faults; no bundle's file is
	testSuffix   = "_test.rego"
)

// Policy is one compiled bundle. It is immutable and safe for concurrent use.
type Policy struct {
	revision string
	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction // reads, as long as the policy lives; nobody writes
	query    ast.Body
	reads    Reads
}

// Fault is one thing that is wrong with a bundle, and where.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // from 1; 0: the file as a whole
	Message string `json:"message"`
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// BundleError says why a bundle is not a policy. It has at least one fault.
type BundleError struct{ Faults []Fault }

func (e *BundleError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "; ")
}

func refuse(file string, line int, format string, args ...any) error {
	return &BundleError{Faults: []Fault{{File: file, Line: line, Message: fmt.Sprintf(format, args...)}}}
}

// Compile checks a bundle and makes it ready to decide; its tests stay out. The
// error is a *BundleError when the bundle is at fault.
func Compile(ctx context.Context, b Bundle) (*Policy, error) {
	modules, err := b.modules(false)
	if err != nil {
		return nil, err
	}
	compiler, err := compile(modules)
	if err != nil {
		return nil, err
	}
	p := &Policy{revision: b.Revision(), compiler: compiler, reads: readsOf(compiler)}
	data, err := b.data()
	if err != nil {
		return nil, err
	}
	p.store = inmem.NewFromObjectWithOpts(data, inmem.OptRoundTripOnWrite(false), inmem.OptReturnASTValuesOnRead(true))
	if p.txn, err = p.store.NewTransaction(ctx); err != nil {
		return nil, fmt.Errorf("opening the bundle's data: %w", err)
	}
	p.query, err = compiler.QueryCompiler().Compile(ast.MustParseBody("decision = data.arbiter.decision"))
	if err != nil {
		return nil, fmt.Errorf("compiling the question: %w", err)
	}
	return p, nil
}

// Revision is that of the bundle.
func (p *Policy) Revision() string { return p.revision }

// Reads says what the policy can read.
func (p *Policy) Reads() Reads { return p.reads }

// modules parses what is Rego in a bundle, with our question beside it.
func (b Bundle) modules(tests bool) (map[string]*ast.Module, error) {
	modules := map[string]*ast.Module{}
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		if path.Ext(name) != ".rego" || strings.HasSuffix(name, testSuffix) && !tests {
			continue
		}
		module, err := ast.ParseModuleWithOpts(name, string(b.Files[name]), parserOptions())
		if err != nil {
			faults = append(faults, faultsOf(name, err)...)
			continue
		}
		if err := inPackage(name, module); err != nil {
			faults = append(faults, faultsOf(name, err)...)
			continue
		}
		modules[name] = module
	}
	if len(faults) > 0 {
		return nil, &BundleError{Faults: faults}
	}
	if len(modules) == 0 {
		return nil, refuse("policy.rego", 0, "there is no Rego in this bundle: write a file that begins with \"package policy\"")
	}
	question, err := ast.ParseModuleWithOpts(decisionFile, decisionSource, parserOptions())
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", decisionFile, err)
	}
	modules[decisionFile] = question
	return modules, nil
}

// inPackage keeps a bundle to data.policy: the question is ours.
func inPackage(name string, module *ast.Module) error {
	packageOf := strings.TrimPrefix(module.Package.Path.String(), "data.")
	if packageOf == "policy" || strings.HasPrefix(packageOf, "policy.") {
		return nil
	}
	if strings.HasSuffix(name, testSuffix) && strings.HasPrefix(packageOf, "policy_test") {
		return nil
	}
	return refuse(name, module.Package.Location.Row, "package %s is not part of a policy: use policy, or policy.<name> (tests: policy_test)", packageOf)
}

func compile(modules map[string]*ast.Module) (*ast.Compiler, error) {
	set, err := schemas()
	if err != nil {
		return nil, err
	}
	compiler := ast.NewCompiler().
		WithCapabilities(capabilities()).
		WithStrict(true).
		WithSchemas(set).
		WithUseTypeCheckAnnotations(true).
		WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(modules); compiler.Failed() {
		return nil, &BundleError{Faults: faultsOf("", compiler.Errors)}
	}
	return compiler, nil
}

// data merges the bundle's data files into one object.
func (b Bundle) data() (map[string]any, error) {
	root := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		if base := path.Base(name); base != "data.json" && base != "data.yaml" {
			continue
		}
		var value map[string]any
		if err := util.Unmarshal(b.Files[name], &value); err != nil {
			return nil, refuse(name, 0, "this is not an object: %v", err)
		}
		for _, part := range slices.Backward(split(path.Dir(name))) {
			value = map[string]any{part: value}
		}
		if err := merge(root, value, name); err != nil {
			return nil, err
		}
	}
	for _, ours := range []string{"arbiter", "policy", "policy_test"} {
		if _, taken := root[ours]; taken {
			return nil, refuse("data.json", 0, "data.%s is for rules: keep data in another directory or under another key", ours)
		}
	}
	return root, nil
}

func split(dir string) []string {
	if dir == "." {
		return nil
	}
	return strings.Split(dir, "/")
}

func merge(into, from map[string]any, name string) error {
	for key, value := range from {
		before, taken := into[key]
		if !taken {
			into[key] = value
			continue
		}
		a, isObject := before.(map[string]any)
		b, both := value.(map[string]any)
		if !isObject || !both {
			return refuse(name, 0, "data.%s is set by another file too", key)
		}
		if err := merge(a, b, name); err != nil {
			return err
		}
	}
	return nil
}

func parserOptions() ast.ParserOptions {
	return ast.ParserOptions{Capabilities: capabilities(), RegoVersion: ast.RegoV1, ProcessAnnotation: true}
}

// faultsOf reads OPA's errors.
func faultsOf(file string, err error) []Fault {
	var bundle *BundleError
	if errors.As(err, &bundle) {
		return bundle.Faults
	}
	var all ast.Errors
	if !errors.As(err, &all) {
		return []Fault{{File: file, Message: err.Error()}}
	}
	faults := make([]Fault, 0, len(all))
	for _, one := range all {
		fault := Fault{File: file, Message: one.Message}
		if one.Location != nil {
			fault.File, fault.Line = one.Location.File, one.Location.Row
		}
		faults = append(faults, fault)
	}
	return faults
}

// capabilities are OPA's built-in functions without those that look outside of
// the input or answer twice differently: http.send, net.lookup_ip_addr,
// opa.runtime, time.now_ns, rand.intn, uuid.rfc4122; those that judge by the
// machine's clock; and those that make code of data.
var capabilities = sync.OnceValue(func() *ast.Capabilities {
	out := ast.CapabilitiesForThisVersion()
	out.AllowNet = []string{}
	out.Builtins = slices.DeleteFunc(out.Builtins, func(b *ast.Builtin) bool {
		return b.Nondeterministic || slices.Contains(forbidden, b.Name)
	})
	return out
})

var forbidden = []string{
	"io.jwt.decode_verify",
	"crypto.x509.parse_and_verify_certificates",
	"crypto.x509.parse_and_verify_certificates_with_options",
	"rego.parse_module",
	"providers.aws.sign_req",
	"trace",
}
