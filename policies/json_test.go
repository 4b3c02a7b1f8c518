package policies

import (
	"bytes"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestRefusedJSON(t *testing.T) {
	for name, value := range map[string]string{
		"nothing": "", "a blank": " ", "cut off": `{"a":`, "two values": "1 2", "a comma": "[1,]", "a key twice": `{"a":1,"a":1}`,
		"a key twice by an escape": `{"a":1,"\u0061":1}`, "not UTF-8": "\"\xff\"", "half a pair": `"\ud800"`, "a control character": "\"\n\"",
		"deep": strings.Repeat("[", 200) + strings.Repeat("]", 200), "deep and cut off": strings.Repeat("[", 1<<20),
		"an enormous number": "1e99999999", "a number beyond float64": "10e399", "a long number": strings.Repeat("1", 300), "NaN": "NaN", "a number with a plus": "+1", "a number with a zero": "01",
		"many values": "[" + strings.Repeat("0,", valuesMost) + "0]",
	} {
		if term, err := termOf([]byte(value), valuesMost); err == nil {
			t.Errorf("%s is read as %.50s", name, term)
		}
	}
	if _, err := termOf([]byte("["+strings.Repeat("0,", 2*valuesMost)+"0]"), 0); err != nil {
		t.Errorf("an operator's own data: %v", err)
	}
}

// FuzzTermOf: what is read is what OPA's own reader makes of it, and what OPA
// does not read is refused.
func FuzzTermOf(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-0,1.50,1e3,"x\u00e9\n",true,false,null,{}]}`, `"\ud83d\ude00"`, "[]", "1E400", `{"a":1,"a":2}`, "-", "[[", `{"":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := termOf(value, valuesMost)
		want, wantErr := ast.ValueFromReader(bytes.NewReader(value))
		if err != nil {
			return // stricter than OPA is right
		}
		if wantErr != nil {
			t.Fatalf("%q is read as %v; OPA says %v", value, got, wantErr)
		}
		if got.Value.Compare(want) != 0 || got.String() != want.String() {
			t.Fatalf("%q is read as %v, by OPA as %v", value, got, want)
		}
	})
}
