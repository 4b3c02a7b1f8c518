package record_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/policies/record"
)

// shapeOf is what a record has of arguments.
func shapeOf(t interface{ Fatalf(string, ...any) }, arguments string) []record.Part {
	r := &record.Record{ID: "r", Input: record.Input{Call: &record.Call{}}}
	r.Input.Call.Arguments = []byte(arguments)
	text := r.Append(nil)
	got, err := record.Parse(text)
	if err != nil || len(text) > record.Most {
		t.Fatalf("%d bytes, %v: %s", len(text), err, text)
	}
	return got.Input.Call.ArgumentsShape
}

func TestShape(t *testing.T) {
	for _, tt := range []struct{ name, arguments, want string }{
		{"a string", `"Zoë"`, `[{ string 4}]`},
		{"escapes count as what they stand for", `"\n\"\u00eb\ud83d\ude00\/"`, `[{ string 9}]`},
		{"scalars", `[1,-2.5e+7,true,false,null,""]`, `[{ array 6} {/0 number 0} {/1 number 0} {/2 boolean 0} {/3 boolean 0} {/4 null 0} {/5 string 0}]`},
		{"space", " { \"a\" : [ 1 , 2 ] , \"b\" : { } } ", `[{ object 2} {/a array 2} {/a/0 number 0} {/a/1 number 0} {/b object 0}]`},
		{"keys of pointers", `{"a/b~c":1,"\u0041\"":2,"":3}`, `[{ object 3} {/a~1b~0c number 0} {/A" number 0} {/ number 0}]`},
		{"a long key", `{"` + strings.Repeat("k", 100) + `":1}`, `[{ object 1} {/` + strings.Repeat("k", 64) + `… number 0}]`},
		{"a long array", `[` + strings.Repeat(`[],`, 99) + `[]]`, `[{ array 100} {/0 array 0} {/1 array 0} {/2 array 0} {/3 array 0} {/4 array 0} {/5 array 0} {/6 array 0} {/7 array 0}]`},
		{"behind a long array", `[[` + strings.Repeat(`1,`, 10_000) + `1],"x"]`, `[{ array 2} {/0 array 10001} {/0/0 number 0} {/0/1 number 0} {/0/2 number 0} {/0/3 number 0} {/0/4 number 0} {/0/5 number 0} {/0/6 number 0} {/0/7 number 0} {/1 string 1}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fmt.Sprint(shapeOf(t, tt.arguments)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Arguments made to be long: the record stays small and says how much there is.
func TestShapeOfHostileArguments(t *testing.T) {
	keys := &strings.Builder{}
	for i := range 10_000 {
		fmt.Fprintf(keys, `"key %d":{"a":"CANARY"},`, i)
	}
	for name, tt := range map[string]struct {
		arguments string
		want      record.Part
	}{
		"4 MiB":        {`{"a":"` + strings.Repeat("CANARY", 4<<20/6) + `"}`, record.Part{Path: "/a", Type: "string", Size: 4 << 20 / 6 * 6}},
		"10,000 keys":  {`{` + keys.String() + `"z":1}`, record.Part{Type: "object", Size: 10_001}},
		"deep nesting": {strings.Repeat(`{"CANARY-free":[`, 30) + strings.Repeat(`]}`, 30), record.Part{Path: "/CANARY-free/0/CANARY-free", Type: "array", Size: 1}},
		"escapes":      {`["` + strings.Repeat(`\u0043`, 700_000) + `"]`, record.Part{Path: "/0", Type: "string", Size: 700_000}},
	} {
		t.Run(name, func(t *testing.T) {
			parts := shapeOf(t, tt.arguments)
			if !slices.Contains(parts, tt.want) || len(parts) > 64 {
				t.Errorf("%d parts without %v: %.300v", len(parts), tt.want, parts)
			}
		})
	}
}

// canaries are JSON values whose every string is the canary and whose every
// number is its own; keys are others.
func canaries(depth int) *rapid.Generator[any] {
	leaf := rapid.SampledFrom([]any{"CANARY", "x CANARY\n", 4711.25, true, nil})
	if depth == 0 {
		return leaf
	}
	key := rapid.StringMatching(`[a-f/~"\\é]{0,4}`)
	return rapid.OneOf(
		leaf,
		rapid.Map(rapid.SliceOfN(canaries(depth-1), 0, 12), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(key, canaries(depth-1), 0, 12), func(v map[string]any) any { return v }),
	)
}

// No value of an argument is ever in a record, and what its shape says is so.
func TestNoValueIsInARecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := canaries(4).Draw(t, "arguments")
		arguments, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		c := record.Call{}
		c.Method, c.Arguments, c.Params = "tools/call", arguments, arguments
		for _, in := range []record.Input{{Call: &c}, {Calls: []record.Call{c, c}}} {
			r := &record.Record{ID: "r", Input: in}
			text := string(r.Append(nil))
			if strings.Contains(text, "CANARY") || strings.Contains(text, "4711") {
				t.Fatal(text)
			}
		}
		all := map[string]record.Part{}
		flatten("", value, all)
		parts := shapeOf(t, string(arguments))
		for _, part := range parts {
			if all[part.Path] != part {
				t.Fatalf("%v, but it is %v", part, all[part.Path])
			}
		}
		if len(parts) < min(len(all), 8) && len(parts) < 64 {
			t.Fatalf("%d parts of %d", len(parts), len(all))
		}
	})
}

// flatten is the shape by another way.
func flatten(path string, value any, into map[string]record.Part) {
	part := record.Part{Path: path}
	switch v := value.(type) {
	case nil:
		part.Type = "null"
	case bool:
		part.Type = "boolean"
	case float64:
		part.Type = "number"
	case string:
		part.Type, part.Size = "string", len(v)
	case []any:
		part.Type, part.Size = "array", len(v)
		for i, item := range v {
			flatten(fmt.Sprintf("%s/%d", path, i), item, into)
		}
	case map[string]any:
		part.Type, part.Size = "object", len(v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			escaped := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
			flatten(path+"/"+escaped, v[name], into)
		}
	}
	into[path] = part
}

// Whatever stands where arguments should, a record is JSON, and the walk ends.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,"b",{"c":null}]}`, `"\ud83d\ude00"`, `{`, `[[[[`, `{"a"`, `{"a":`, `"\u00`, `"\`, `[1 2]`, `,`, `]`, `{]`, `{"a":}`, ``, " ", "\"\xff\"", `{"\ud800":1}`,
		strings.Repeat("[", 200), `{"a":{},,"b":1}`, `truefalse`, `[}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		if parts := shapeOf(t, arguments); len(parts) > 64 {
			t.Errorf("%d parts", len(parts))
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	c := record.Call{}
	c.Method, c.Tool = "tools/call", "search"
	c.Arguments = []byte(`{"query":"` + strings.Repeat("x", 900) + `"}`)
	r := &record.Record{ID: "7f3e2d1c-9a2b-4c1d-8e0f-3c4d5e6f7081", Revision: "0011223344556677", Result: &record.Result{}, Input: record.Input{Call: &c}}
	var space [2048]byte
	b.ReportAllocs()
	for b.Loop() {
		r.Append(space[:0])
	}
}
