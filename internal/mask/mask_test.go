package mask_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/arbiter-gateway/arbiter/internal/mask"
)

func TestMask(t *testing.T) {
	const value = ` { "user" : {"name":"a","Password":"p","password":["p"]} , "list":[{"k":1},{"k":2,"a/b":3}], "*":{"k":4}, "n":1.50, "e":"\u0041" } `
	for _, tt := range []struct {
		name     string
		pointers []string
		want     string
	}{
		{"nothing", nil, `{"user":{"name":"a","Password":"p","password":["p"]},"list":[{"k":1},{"k":2,"a/b":3}],"*":{"k":4},"n":1.50,"e":"\u0041"}`},
		{"all of it", []string{"/none", ""}, `"masked"`},
		{"a key, in any case", []string{"/USER/password"}, `{"user":{"name":"a","Password":"masked","password":"masked"},"list":[{"k":1},{"k":2,"a/b":3}],"*":{"k":4},"n":1.50,"e":"\u0041"}`},
		{"an index, an escape", []string{"/list/1/a~1b"}, `{"user":{"name":"a","Password":"p","password":["p"]},"list":[{"k":1},{"k":2,"a/b":"masked"}],"*":{"k":4},"n":1.50,"e":"\u0041"}`},
		{"any", []string{"/*/k", "/list/*/k", "/n"}, `{"user":{"name":"a","Password":"p","password":["p"]},"list":[{"k":"masked"},{"k":"masked","a/b":3}],"*":{"k":"masked"},"n":"masked","e":"\u0041"}`},
		{"below a scalar", []string{"/n/x", "/e/*"}, `{"user":{"name":"a","Password":"p","password":["p"]},"list":[{"k":1},{"k":2,"a/b":3}],"*":{"k":4},"n":1.50,"e":"\u0041"}`},
		{"any of any", []string{"/*/*"}, `{"user":{"name":"masked","Password":"masked","password":"masked"},"list":["masked","masked"],"*":{"k":"masked"},"n":1.50,"e":"\u0041"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := mask.Parse(tt.pointers)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Append([]byte("x"), []byte(value))
			if want := "x" + tt.want; err != nil && tt.want != "" || strings.ReplaceAll(string(got), `"A"`, `"\u0041"`) != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, pointers := range map[string][]string{
		"no slash": {"/ok", "password"}, "a bad escape": {"/a~2b"}, "half an escape": {"/a~"}, "JSONPath": {"$.a"},
		"too long": {"/" + strings.Repeat("x", mask.MostBytes)}, "too many": make([]string, mask.MostPointers+1),
	} {
		m, err := mask.Parse(pointers)
		if err == nil || m != nil || name != "too many" && !errors.Is(err, mask.ErrPointer) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	m, err := mask.Parse([]string{"/a", "/b/c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{``, `{`, `{"a"`, `{"a":1`, `{"a":}`, `[1`, `{"x":1,"x":2}`, `{"b":{"d":1,"d":2}}`, `1 2`, "\"\xff\"", `{"a":1}}`, `}`, `{"b":]`} {
		if got, err := m.Append(nil, []byte(value)); err == nil || got != nil {
			t.Errorf("%s became %s", value, got)
		}
	}
}

// IDs tell masks apart, also those whose texts would be the same in a row.
func TestID(t *testing.T) {
	seen := map[string]bool{}
	for _, pointers := range [][]string{nil, {""}, {"/a"}, {"/a", "/b"}, {"/b", "/a"}, {"/a\" \"/b"}, {"/a/b"}} {
		m, err := mask.Parse(pointers)
		if err != nil {
			t.Fatal(err)
		}
		if seen[m.ID()] || m.ID() != mask.ID(pointers) {
			t.Errorf("%q has the id %s of another, or another than %s", pointers, m.ID(), mask.ID(pointers))
		}
		seen[m.ID()] = true
	}
	if mask.ID(nil) != mask.ID([]string{}) {
		t.Error("no rules are not no rules")
	}
}

// What lies at or below a masked path never comes out, and the rest does.
func TestMaskedValuesNeverComeOut(t *testing.T) {
	keys := rapid.SampledFrom([]string{"a", "A", "b", "c/d", "~", "", "*", "0"})
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SliceOfN(keys, 1, 5).Draw(t, "path")
		value := any("CANARY")
		rule := ""
		for i := len(path) - 1; i >= 0; i-- {
			value = map[string]any{path[i]: value, "other": "kept"}
			part := strings.ReplaceAll(strings.ReplaceAll(path[i], "~", "~0"), "/", "~1")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 1:
				part = "*"
			case 2:
				part = strings.ToUpper(part)
			}
			if rapid.Bool().Draw(t, "cut") {
				rule = "" // begins again above: the rule ends before the path does
			}
			rule = "/" + part + rule
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mask.Parse([]string{"/nothing", rule})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Append(nil, text)
		if err != nil || strings.Contains(string(got), "CANARY") || !json.Valid(got) {
			t.Fatalf("%s of %s by %s, %v", got, text, rule, err)
		}
	})
}
