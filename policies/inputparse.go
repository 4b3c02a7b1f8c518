package policies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	valuecache "github.com/open-policy-agent/opa/v1/topdown/cache"
)

// InputError says why JSON is not an input: where, and what is wrong with it.
type InputError struct{ Faults []string }

func (e *InputError) Error() string { return strings.Join(e.Faults, "; ") }

func wrongAt(member string, cause error) error {
	return &InputError{Faults: []string{"input." + member + ": " + cause.Error()}}
}

// ParseInput reads the JSON of an input, as InputSchema describes it and
// AppendJSON writes it. What the schema does not know is refused, and so is
// what is there but empty: the gateway leaves it out, and a policy would see
// what it never sees. The error is an *InputError.
func ParseInput(text []byte) (Input, error) {
	if err := matchSchema(text); err != nil {
		return Input{}, err
	}
	if err := refuseEmpty(text); err != nil {
		return Input{}, err
	}
	var read InputJSON
	if err := json.Unmarshal(text, &read, json.RejectUnknownMembers(true)); err != nil {
		return Input{}, &InputError{Faults: []string{err.Error()}}
	}
	if !slices.Contains([]Action{ActionCall, ActionOpenStream, ActionListItem, ActionBootstrap, ActionRotate}, read.Action) {
		return Input{}, wrongAt("action", fmt.Errorf("%q is not one of call, open_stream, list_item, identity.bootstrap and identity.rotate", read.Action))
	}
	if read.Transport != "" && read.Transport != "mcp" && read.Transport != "rpc" {
		return Input{}, wrongAt("transport", fmt.Errorf("%q is neither mcp nor rpc", read.Transport))
	}
	return read.Input()
}

// schemaContext lets OPA keep the schema that it compiled.
var schemaContext = sync.OnceValue(func() topdown.BuiltinContext {
	return topdown.BuiltinContext{
		Context: context.Background(), Capabilities: capabilities(),
		InterQueryBuiltinValueCache: valuecache.NewInterQueryValueCache(context.Background(), nil),
	}
})

var schemaTerm = sync.OnceValues(func() (*ast.Term, error) { return termOf(InputSchema, 0) })

// matchSchema holds text against InputSchema, with OPA's own reading of it.
func matchSchema(text []byte) error {
	document, err := termOf(text, 0)
	if err != nil {
		return &InputError{Faults: []string{"this is not JSON: " + err.Error()}}
	}
	if _, isObject := document.Value.(ast.Object); !isObject {
		return &InputError{Faults: []string{"an input is a JSON object"}}
	}
	schema, err := schemaTerm()
	if err != nil {
		return err
	}
	var faults []string
	guarded() // which writes to the table that is read here
	match := topdown.GetBuiltin(ast.JSONMatchSchema.Name)
	err = match(schemaContext(), []*ast.Term{document, schema}, func(answer *ast.Term) error {
		faults = schemaFaults(answer)
		return nil
	})
	switch {
	case err != nil:
		return &InputError{Faults: []string{err.Error()}}
	case len(faults) > 0:
		return &InputError{Faults: faults}
	}
	return nil
}

// schemaFaults reads [matches, [{"field", "desc"}]].
func schemaFaults(answer *ast.Term) []string {
	pair, ok := answer.Value.(*ast.Array)
	if !ok || pair.Len() != 2 {
		return []string{"the schema gave no answer"}
	}
	if pair.Elem(0).Value.Compare(ast.Boolean(true)) == 0 {
		return nil
	}
	out := []string{"input: this does not match the schema"}
	list, isList := pair.Elem(1).Value.(*ast.Array)
	if !isList {
		return []string{"the schema gave no answer"}
	}
	list.Foreach(func(one *ast.Term) {
		fault, ok := one.Value.(ast.Object)
		if !ok {
			return
		}
		field, _ := text(fault, "field")
		what, _ := text(fault, "desc")
		if field = strings.TrimPrefix(field, "(root)"); field != "" {
			field = "." + strings.TrimPrefix(field, ".")
		}
		out = append(out, printable("input"+field+": "+what))
	})
	if len(out) > 1 {
		return out[1:]
	}
	return out
}

// freeParts are those whose content is others', and may be empty.
var freeParts = []string{
	"/principal/claims", "/principal/scopes", "/server/labels", "/server/grants", "/server/data",
	"/call/arguments", "/call/params", "/request/headers",
}

// refuseEmpty finds "", false and [] where the gateway would leave the member out.
func refuseEmpty(text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &InputError{Faults: []string{"this is not JSON: " + err.Error()}}
		}
		at := string(dec.StackPointer())
		if slices.ContainsFunc(freeParts, func(free string) bool { return at == free || strings.HasPrefix(at, free+"/") }) {
			continue
		}
		empty := token.Kind() == '"' && token.String() == "" || token.Kind() == 'f' || token.Kind() == '[' && dec.PeekKind() == ']'
		if empty {
			return wrongAt(strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", "."), errors.New("this is empty; leave it out, as the gateway does"))
		}
	}
}
