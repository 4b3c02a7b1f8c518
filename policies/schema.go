package policies

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// InputSchema is the JSON Schema (draft 7) of the input. A policy that asks for
// what it does not have is refused when it is compiled.
//
//go:embed schema/input.json
var InputSchema []byte

// schemas is what the compiler checks references into input against.
func schemas() (*ast.SchemaSet, error) {
	var schema any
	if err := json.Unmarshal(InputSchema, &schema); err != nil {
		return nil, fmt.Errorf("reading the input's schema: %w", err)
	}
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schema)
	return set, nil
}
