package lists_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// hidingX shows what does not begin with x.
var hidingX = each(func(name string) bool { return !strings.HasPrefix(name, "x") })

var itemNames = map[string]string{"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}

// spaced writes a value with white space where JSON lets it be.
func spaced(t *rapid.T, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "indented") {
		var out bytes.Buffer
		if err := json.Indent(&out, text, "", rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent")); err != nil {
			t.Fatal(err)
		}
		text = out.Bytes()
	}
	return string(text)
}

func drawItem(t *rapid.T, kind string) any {
	name := rapid.SampledFrom([]string{"x", "xy", "a", "b", "", "\"x", "ä\u2028"}).Draw(t, "name")
	switch rapid.IntRange(0, 9).Draw(t, "item") {
	case 0:
		return name
	case 1:
		return map[string]any{"title": name}
	}
	return map[string]any{itemNames[kind]: name, "title": "x", "more": []any{1.5, map[string]any{"name": "x"}}}
}

// stays says what a whole reading would let stay.
func stays(item any, kind string) bool {
	object, ok := item.(map[string]any)
	if !ok {
		return false
	}
	name, _ := object[itemNames[kind]].(string)
	return name != "" && !strings.HasPrefix(name, "x")
}

// drawAnswer draws a message and the same without what is hidden.
func drawAnswer(t *rapid.T) (in, want map[string]any) {
	in, want = map[string]any{"jsonrpc": "2.0", "id": 7}, map[string]any{"jsonrpc": "2.0", "id": 7}
	if rapid.IntRange(0, 4).Draw(t, "no result") == 0 {
		in["method"], want["method"] = "m", "m"
		return in, want
	}
	all, left := map[string]any{"nextCursor": "x"}, map[string]any{"nextCursor": "x"}
	for _, kind := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"tools", "prompts", "resources", "resourceTemplates"}), 0, 2, rapid.ID).Draw(t, "kinds") {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return drawItem(t, kind) }), 0, 6).Draw(t, "items")
		kept := []any{}
		for _, item := range items {
			if stays(item, kind) {
				kept = append(kept, item)
			}
		}
		all[kind], left[kind] = items, kept
	}
	in["result"], want["result"] = all, left
	return in, want
}

// TestPropertyMessageKeepsExactlyWhatIsShown compares with a filter that reads
// everything into maps first.
func TestPropertyMessageKeepsExactlyWhatIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, wantOne := drawAnswer(t)
		var in, want any = one, wantOne
		if rapid.Bool().Draw(t, "batch") {
			two, wantTwo := drawAnswer(t)
			in, want = []any{one, two}, []any{wantOne, wantTwo}
		}
		text := spaced(t, in)
		out, _, err := hidingX.Message([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		checkSame(t, string(out), want)
	})
}

// checkSame expects that text is JSON and says what want says.
func checkSame(t *rapid.T, text string, want any) {
	var got, wanted any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	whole, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(whole, &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Fatalf("got  %s\nwant %s", text, whole)
	}
}

// drawLine draws one line of an event, mostly a proper one.
func drawLine(t *rapid.T) string {
	in, _ := drawAnswer(t)
	whole := spaced(t, in)
	return rapid.SampledFrom([]string{
		"data: " + strings.ReplaceAll(whole, "\n", "\ndata: "), "data:" + strings.ReplaceAll(whole, "\n", "\r\ndata:"),
		"data: [", "data: " + strings.ReplaceAll(whole, "\n", " "), "data: ,", "data: ]", "data: ", "data",
		"id: 1", "id", "event: message", "retry: 10", ": comment", ":",
		"Data: " + whole, " data: " + whole, "x: y", ": \u2028data: " + whole, "\ufeffdata: " + whole,
		"data: {\"jsonrpc\":\"2.0\",\"x\":", "data: }", ": \fdata: " + whole, "id: \x00", "data: {\"y\":\"\u2028\u2028data: z\"}",
	}).Draw(t, "line")
}

func drawStream(t *rapid.T) string {
	var out strings.Builder
	if rapid.IntRange(0, 9).Draw(t, "mark") == 0 {
		out.WriteString("\ufeff")
	}
	end := rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n", "\r\n", "\r"})
	for range rapid.IntRange(0, 4).Draw(t, "events") {
		for range rapid.IntRange(0, 3).Draw(t, "lines") {
			out.WriteString(drawLine(t) + end.Draw(t, "end"))
		}
		out.WriteString(end.Draw(t, "empty line"))
	}
	return out.String()
}

// TestPropertyStream holds, for any stream and any way to split it: the chunks
// change nothing, a reader of the standard finds the same events with filtered
// data, and no careless one finds more.
func TestPropertyStream(t *testing.T) {
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawStream(t)
		whole, _, err := through(hidingX, in)
		var chunks []string
		for rest := in; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		split, _, splitErr := through(hidingX, append(chunks, "")...)
		if split != whole || fmt.Sprint(err) != fmt.Sprint(splitErr) {
			t.Fatalf("in %q\nwhole %q, %v\nsplit %q, %v", in, whole, err, split, splitErr)
		}
		checkNobodySees(t, in, whole, "x")
		if err == nil {
			passed++
			checkEvents(t, standard(in), standard(whole))
		}
	})
	if passed < 20 {
		t.Errorf("only %d streams passed: the test says little", passed)
	}
}

// checkEvents expects the same events, their data filtered.
func checkEvents(t *rapid.T, before, after []message) {
	if len(before) != len(after) {
		t.Fatalf("%d events became %d: %q, %q", len(before), len(after), before, after)
	}
	for i, m := range before {
		if after[i].event != m.event || after[i].id != m.id {
			t.Fatalf("%q became %q", m, after[i])
		}
		if strings.TrimSpace(m.data) == "" {
			if strings.TrimSpace(after[i].data) != "" {
				t.Fatalf("%q became %q", m, after[i])
			}
			continue
		}
		want, _, err := hidingX.Message([]byte(m.data))
		if err != nil {
			t.Fatalf("%q passed: %v", m.data, err)
		}
		checkSame(t, after[i].data, json.RawMessage(want))
	}
}
