package policies

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// names are the last words of the parts' paths, as OPA's terms; made once, and
// shared by all inputs.
var names = func() (out [len(paths)]*ast.Term) {
	for i, path := range paths {
		out[i] = ast.StringTerm(path[strings.LastIndexByte(path, '.')+1:])
	}
	return out
}()

// words are the strings that many inputs hold.
var words = func() map[string]*ast.Term {
	out := map[string]*ast.Term{}
	for _, word := range []string{
		"mcp", "rpc", "GET", "POST", "DELETE", "access_token",
		string(ActionCall), string(ActionOpenStream), string(ActionListItem), string(ActionBootstrap), string(ActionRotate),
		"tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "resources/list",
		ScopeConnect, ScopeTools, ScopeBootstrap,
	} {
		out[word] = ast.StringTerm(word)
	}
	return out
}()

func wordTerm(s string) *ast.Term {
	if term, known := words[s]; known {
		return term
	}
	return ast.StringTerm(s)
}

func textsTerm(values []string) *ast.Term {
	terms := make([]*ast.Term, len(values))
	for i, value := range values {
		terms[i] = wordTerm(value)
	}
	return ast.ArrayTerm(terms...)
}

// nanosecondsTerm counts from 1970 in UTC, as OPA's time functions do.
func nanosecondsTerm(t time.Time) *ast.Term {
	return ast.NewTerm(ast.Number(strconv.FormatInt(t.UnixNano(), 10)))
}

// object collects members; empty ones stay out, so that what is not there is
// absent and never empty.
type object [][2]*ast.Term

func (o *object) add(name string, value *ast.Term) {
	*o = append(*o, [2]*ast.Term{ast.StringTerm(name), value})
}

func (o *object) text(name, value string) {
	if value != "" {
		o.add(name, ast.StringTerm(value))
	}
}

// json adds a value that was checked to be JSON by whoever has it first.
func (o *object) json(name string, value jsontext.Value) error {
	if len(value) == 0 {
		return nil
	}
	term, err := termOf(value, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o.add(name, term)
	return nil
}

func (o object) term() *ast.Term { return ast.NewTerm(ast.NewObject(o...)) }
