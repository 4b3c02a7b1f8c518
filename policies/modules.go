package policies

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

const testSuffix = "_test.rego"

// modules parses what is Rego in a bundle, with our question beside it.
func (b Bundle) modules(tests bool) (map[string]*ast.Module, error) {
	modules := map[string]*ast.Module{}
	var faults []Fault
	size, rules := 0, 0
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		isTest := strings.HasSuffix(name, testSuffix)
		if path.Ext(name) != ".rego" || isTest && !tests {
			continue
		}
		if size += len(b.Files[name]); size > regoMost {
			return nil, refuse(name, 0, "more than %d KiB of Rego with this file: what is data goes into data.json", regoMost>>10)
		}
		module, err := parse(name, b.Files[name])
		if err == nil {
			err = inPlace(module, isTest)
		}
		if err == nil {
			err = small(module)
		}
		if err != nil {
			faults = append(faults, faultsOf(name, err)...)
			continue
		}
		if rules += len(module.Rules); rules > rulesMost {
			return nil, refuse(name, 0, "more than %d rules with this file", rulesMost)
		}
		modules[name] = module
	}
	if len(faults) > 0 {
		return nil, &BundleError{Faults: faults}
	}
	if len(modules) == 0 {
		return nil, refuse("policy.rego", 0, "there is no Rego in this bundle: write a file that begins with \"package policy\"")
	}
	question, err := parse(decisionFile, []byte(decisionSource))
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", decisionFile, err)
	}
	modules[decisionFile] = question
	return modules, nil
}

func parse(name string, source []byte) (*ast.Module, error) {
	return ast.ParseModuleWithOpts(name, string(source), ast.ParserOptions{
		Capabilities: capabilities(), RegoVersion: ast.RegoV1, ProcessAnnotation: true,
	})
}

// inPlace keeps a bundle to data.policy: the question is ours, and asks it.
func inPlace(module *ast.Module, isTest bool) error {
	at := module.Package.Path
	root, _ := at[1].Value.(ast.String)
	if root != "policy" && (root != "policy_test" || !isTest) {
		return refuse(module.Package.Location.File, module.Package.Location.Row,
			"package %s is not part of a policy: use policy, or policy.<name> (tests: policy_test)", strings.TrimPrefix(at.String(), "data."))
	}
	var err error
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if !isTest && ref.HasPrefix(questionRef) && err == nil {
			err = refuse(ref[0].Location.File, ref[0].Location.Row, "data.arbiter is what asks: a policy cannot read it")
		}
		return false
	})
	return err
}

var questionRef = ast.MustParseRef("data.arbiter")
