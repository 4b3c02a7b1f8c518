package policies

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// ours are the names in data that belong to rules.
var ours = []string{"arbiter", "policy", "policy_test"}

// data merges the bundle's data files into one object.
func (b Bundle) data() (ast.Object, error) {
	root := ast.NewObject()
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		read, known := map[string]func([]byte) (jsontext.Value, error){"data.json": asJSON, "data.yaml": yamlToJSON}[path.Base(name)]
		if !known {
			continue
		}
		value, err := dataFile(b.Files[name], read)
		if err != nil {
			return nil, refuse(name, 0, "%v", err)
		}
		for _, part := range slices.Backward(split(path.Dir(name))) {
			value = ast.NewObject([2]*ast.Term{ast.StringTerm(part), ast.NewTerm(value)})
		}
		for _, rules := range ours {
			if value.Get(ast.StringTerm(rules)) != nil {
				return nil, refuse(name, 0, "data.%s is for rules: keep data in another directory or under another key", rules)
			}
		}
		if err := merge(root, value, "data"); err != nil {
			return nil, refuse(name, 0, "%v", err)
		}
	}
	return root, nil
}

func asJSON(content []byte) (jsontext.Value, error) { return content, nil }

func dataFile(content []byte, read func([]byte) (jsontext.Value, error)) (ast.Object, error) {
	value, err := read(content)
	if err != nil {
		return nil, err
	}
	term, err := termOf(value, 0)
	if err != nil {
		return nil, err
	}
	object, ok := term.Value.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("this is %s instead of an object", ast.ValueName(term.Value))
	}
	return object, nil
}

func split(dir string) []string {
	if dir == "." {
		return nil
	}
	return strings.Split(dir, "/")
}

// merge adds what from says; what both say has to be objects.
func merge(into, from ast.Object, at string) error {
	return from.Iter(func(key, value *ast.Term) error {
		here := at + "." + string(key.Value.(ast.String))
		before := into.Get(key)
		if before == nil {
			into.Insert(key, value)
			return nil
		}
		a, isObject := before.Value.(ast.Object)
		b, both := value.Value.(ast.Object)
		if !isObject || !both {
			return fmt.Errorf("%s is set by another file too", here)
		}
		return merge(a, b, here)
	})
}
