package policies

import (
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/arbiter-gateway/arbiter/policies/inputtest"
)

// TestEveryFieldIsInEveryForm: an input is spelled by hand as a term, as a key
// and as JSON. A field that one of them forgot would be a decision that is
// remembered for somebody else, or an explanation of something else. (Records
// and questions have a test like this one.)
func TestEveryFieldIsInEveryForm(t *testing.T) {
	whole := fullInput()
	number, err := whole.Server.read() // Vary has servers of their own, which are other ones to a key
	if err != nil {
		t.Fatal(err)
	}
	full := formsOf(t, whole)
	varied := 0
	for path, in := range inputtest.Vary(whole) {
		if in.Server != nil && reflect.DeepEqual(shown(t, &Input{Server: in.Server}), shown(t, &Input{Server: whole.Server})) {
			in.Server.seen.Store(number)
		}
		varied++
		got := formsOf(t, in)
		if got.term.Compare(full.term) == 0 {
			t.Errorf("%s is not in the term", path)
		}
		if got.json == full.json {
			t.Errorf("%s is not in the JSON", path)
		}
		if got.key == full.key && path != ".Time" { // which keeps an input from having one
			t.Errorf("%s is not in the key", path)
		}
		if err := inputSchema(t).Validate(shown(t, in)); err != nil && path != ".Server.Grants" { // an object here
			t.Errorf("%s: %v", path, err)
		}
		if again := formsOf(t, got.read); again.term.Compare(got.term) != 0 {
			t.Errorf("%s: %v is read as %v", path, got.term, again.term)
		}
	}
	if varied < 50 {
		t.Errorf("%d fields were varied", varied)
	}
}

type forms struct {
	term ast.Value
	json string
	key  string
	read *Input // of json
}

func formsOf(t *testing.T, in *Input) (out forms) {
	t.Helper()
	term, err := in.term(&Reads{parts: everyPart})
	if err != nil {
		t.Fatal(err)
	}
	text, err := in.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var k key
	if ok, err := in.key(&k, Reads{parts: everyPart &^ partTime}); !ok || err != nil {
		t.Fatalf("no key: %v", err)
	}
	var written InputJSON
	if err := json.Unmarshal(text, &written, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	read, err := written.Input()
	if err != nil {
		t.Fatal(err)
	}
	return forms{term: term.Value, json: string(text), key: string(k.bytes()), read: &read}
}
