package record_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/mask"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

func TestValues(t *testing.T) {
	long := jsontext.Value(`"` + strings.Repeat("x", record.MostValues) + `"`)
	for _, tt := range []struct {
		name      string
		arguments []jsontext.Value
		want      string
	}{
		{"one", []jsontext.Value{[]byte(`{"a": 1, "password": "p"}`)}, `[{"a":1,"password":"masked"}]`},
		{"a batch", []jsontext.Value{[]byte(`[1]`), nil, []byte(`{"password":{"deep":"p"}}`)}, `[[1],null,{"password":"masked"}]`},
		{"none", []jsontext.Value{nil, nil}, ""},
		{"too long", []jsontext.Value{nil, long}, `["too long"]`},
		{"too long with the masks", []jsontext.Value{[]byte(`[` + strings.Repeat(`{"password":1},`, 1000) + `1]`)}, `["too long"]`},
		{"not JSON", []jsontext.Value{[]byte(`{"a":1`)}, ""},
		{"more than JSON", []jsontext.Value{[]byte(`1 "password"`)}, ""},
		{"twice the same key", []jsontext.Value{[]byte(`{"b":{"a":1,"a":2}}`)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := mask.Parse([]string{"/password", "/*/password"})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(record.Values(m, tt.arguments)); got != tt.want {
				t.Errorf("got %.200s, want %.200s", got, tt.want)
			}
		})
	}
}
