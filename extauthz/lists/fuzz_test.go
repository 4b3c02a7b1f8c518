package lists_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzMessage expects that what passes has one reading, without a hidden item,
// and that filtering it again changes nothing.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		listX, "[" + listX + "," + ping + "]", result(`"tools":[{"name":"x"},7,{"n\u0061me":"a"}],"Tools":1`),
		result(`"prompts":[{"name":"a","NAME":"x"}],"cacheScope":"public"`), `{"re` + "\u017f" + `ult":{"tools":[]}}`,
		result(`"resources":[{"uri":"x","name":"a"}],"resourceTemplates":null`), result(`"tools":{"x":1}`),
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, private bool) {
		filter, before := hidingX, bytes.Clone(body)
		filter.Private = private
		out, hidden, err := filter.Message(body)
		if !bytes.Equal(body, before) {
			t.Fatal("Message wrote into the body")
		}
		if err != nil {
			if out != nil {
				t.Fatalf("%q with %v", out, err)
			}
			return
		}
		if !jsontext.Value(out).IsValid() {
			t.Fatalf("%q is no JSON", out)
		}
		for _, name := range listed(string(out)) {
			if strings.HasPrefix(name, "x") {
				t.Fatalf("%q is in %q", name, out)
			}
		}
		again, more, err := filter.Message(out)
		if err != nil || more != 0 || !bytes.Equal(again, out) {
			t.Fatalf("filtered again: %q, %d, %v", again, more, err)
		}
		if hidden == 0 && !private && !bytes.Equal(out, body) {
			t.Fatalf("nothing is hidden, but %q became %q", body, out)
		}
	})
}

// FuzzStream expects of any bytes, split anywhere, what TestPropertyStream
// expects of drawn ones.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"id: 1\ndata: " + listX + "\n\n", "\ufeff: c\rdata: " + listX + "\r\n\r\n", "data: [\ndata: " + listX + "\ndata: ]\n\n",
		"data\n\nData: " + listX + "\n\n: \u2028data: " + listX + "\n\n", "data: {\"x\":\"\u2028\"}\n\n", "id: \x00\nretry: 1\n\n\n",
	} {
		for split := range uint(4) {
			f.Add([]byte(seed), split*11)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, split uint) {
		at := int(split % uint(len(in)+1))
		whole, hidden, err := through(hidingX, string(in))
		halves, hiddenToo, halvesErr := through(hidingX, string(in[:at]), string(in[at:]))
		if halves != whole || hidden != hiddenToo || (err == nil) != (halvesErr == nil) {
			t.Fatalf("in %q\nwhole %q, %v\nsplit at %d %q, %v", in, whole, err, at, halves, halvesErr)
		}
		checkNobodySees(t, string(in), whole, "x")
		if again, more, err := through(hidingX, whole); again != whole || more != 0 || err != nil {
			t.Fatalf("%q\nfiltered again: %q, %d, %v", whole, again, more, err)
		}
		if err == nil && len(standard(string(in))) != len(standard(whole)) {
			t.Fatalf("in %q\nout %q: other events", in, whole)
		}
		for _, m := range standard(whole) {
			if strings.TrimSpace(m.data) != "" && !json.Valid([]byte(m.data)) {
				t.Fatalf("%q is no JSON", m.data)
			}
		}
	})
}
