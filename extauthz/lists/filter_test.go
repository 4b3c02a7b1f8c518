package lists_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
)

// hiding shows everything but what these names say.
func hiding(names ...string) lists.Filter {
	return each(func(name string) bool { return !slices.Contains(names, name) })
}

func each(shown func(name string) bool) lists.Filter {
	return lists.Filter{Show: func(_ lists.Kind, items []lists.Item) (out []bool, err error) {
		for _, item := range items {
			out = append(out, shown(item.Name))
		}
		return out, nil
	}}
}

// result is an answer to the request 7.
func result(members string) string { return `{"jsonrpc":"2.0","id":7,"result":{` + members + `}}` }

func TestMessageTakesOutWhatIsNotShown(t *testing.T) {
	for _, test := range []struct {
		name, in, want string
		hidden         int
	}{
		{"the first", result(`"tools":[{"name":"x"}, {"name":"a"}]`), result(`"tools":[{"name":"a"}]`), 1},
		{"the last", result(`"tools":[{"name":"a"} , {"name":"x"} ]`), result(`"tools":[{"name":"a"} ]`), 1},
		{"in the middle", result(`"tools":[{"name":"a"},{"name":"x"}, {"name":"b"}]`), result(`"tools":[{"name":"a"}, {"name":"b"}]`), 1},
		{"several beside each other", result(`"tools":[{"name":"x"},{"name":"y"},{"name":"a"},{"name":"x"},{"name":"y"},{"name":"b"}]`), result(`"tools":[{"name":"a"},{"name":"b"}]`), 4},
		{"all: an empty page with its cursor", result(`"tools":[ {"name":"x"}, {"name":"y"} ],"nextCursor":"2"`), result(`"tools":[  ],"nextCursor":"2"`), 2},
		{"nothing", result(`"tools":[{"name":"a"}]`), result(`"tools":[{"name":"a"}]`), 0},
		{"an empty list", result(`"tools":[]`), result(`"tools":[]`), 0},
		{"null for a list", result(`"tools":null`), result(`"tools":null`), 0},
		{
			"every other byte stays",
			" {\n\"id\": 1.0e2,\"x\":\"\\u0041\\/\", \"result\": {\"tools\":\t[{\"name\":\"x\"},{\"name\" : \"a\",\"n\":1.50}] , \"z\":[ 1e0]}}\r\n",
			" {\n\"id\": 1.0e2,\"x\":\"\\u0041\\/\", \"result\": {\"tools\":\t[{\"name\" : \"a\",\"n\":1.50}] , \"z\":[ 1e0]}}\r\n", 1,
		},
		{"prompts", result(`"prompts":[{"name":"x"},{"name":"a"}]`), result(`"prompts":[{"name":"a"}]`), 1},
		{"resources by uri", result(`"resources":[{"name":"a","uri":"x"},{"name":"x","uri":"a"}]`), result(`"resources":[{"name":"x","uri":"a"}]`), 1},
		{"templates", result(`"resourceTemplates":[{"uriTemplate":"x","name":"a"},{"uriTemplate":"a"}]`), result(`"resourceTemplates":[{"uriTemplate":"a"}]`), 1},
		{"all kinds at once", result(`"prompts":[{"name":"x"}],"tools":[{"name":"x"}]`), result(`"prompts":[],"tools":[]`), 2},
		{"name with escapes", result(`"tools":[{"n\u0061me":"\u0078"}]`), result(`"tools":[]`), 1},
		{"in a batch", `[` + result(`"tools":[{"name":"x"}]`) + `, {"jsonrpc":"2.0","method":"m"}]`, `[` + result(`"tools":[]`) + `, {"jsonrpc":"2.0","method":"m"}]`, 1},
		{"beside an error", `{"id":7,"error":{"code":1},"result":{"tools":[{"name":"x"}]}}`, `{"id":7,"error":{"code":1},"result":{"tools":[]}}`, 1},

		{"without a name", result(`"tools":[{},{"title":"a"},{"name":""},{"name":null},{"name":7},{"name":["a"]},{"name":"a"}]`), result(`"tools":[{"name":"a"}]`), 6},
		{"no object", result(`"tools":["a",null,[{"name":"a"}],7,{"name":"a"}]`), result(`"tools":[{"name":"a"}]`), 4},
		{"name that a careless reader takes from elsewhere", result(`"tools":[{"name":"a","Name":"x"},{"NAME":"a"},{"name":"a","name ":"x"},{"name":"a","na\u200bme":"x"}]`), result(`"tools":[]`), 4},
		{"a resource without uri", result(`"resources":[{"name":"a"}]`), result(`"resources":[]`), 1},

		{"no list: deeper", result(`"capabilities":{"tools":{}},"structuredContent":{"tools":[{"name":"x"}]}`), result(`"capabilities":{"tools":{}},"structuredContent":{"tools":[{"name":"x"}]}`), 0},
		{"no list: result is an array", `{"id":7,"result":[{"tools":[{"name":"x"}]}]}`, `{"id":7,"result":[{"tools":[{"name":"x"}]}]}`, 0},
		{"no list: params", `{"method":"m","params":{"tools":[{"name":"x"}]}}`, `{"method":"m","params":{"tools":[{"name":"x"}]}}`, 0},
		{"an error", `{"id":7,"error":{"code":1,"message":"no"}}`, `{"id":7,"error":{"code":1,"message":"no"}}`, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, hidden, err := hiding("x", "y").Message([]byte(test.in))
			if err != nil || string(got) != test.want || hidden != test.hidden {
				t.Errorf("got  %s, %d hidden, %v\nwant %s, %d", got, hidden, err, test.want, test.hidden)
			}
		})
	}
}

func TestMessageRefuses(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, test := range []struct{ name, in, want string }{
		{"nothing", ``, lists.ReasonInvalid},
		{"cut off", result(`"tools":[{"name":"a"}`)[:40], lists.ReasonInvalid},
		{"two values", result(``) + result(``), lists.ReasonInvalid},
		{"trailing bytes", result(`"tools":[]`) + `x`, lists.ReasonInvalid},
		{"byte order mark", "\ufeff" + result(``), lists.ReasonInvalid},
		{"comment", `{/**/"result":{}}`, lists.ReasonInvalid},
		{"NaN", result(`"x":NaN`), lists.ReasonInvalid},
		{"invalid UTF-8", result("\"x\":\"\xff\""), lists.ReasonInvalid},
		{"invalid UTF-8 in a name", result("\"tools\":[{\"name\":\"\xc0\xaf\"}]"), lists.ReasonInvalid},
		{"lone surrogate in a name", result(`"tools":[{"name":"\ud800"}]`), lists.ReasonInvalid},
		{"a string", `"tools"`, lists.ReasonNotMessage},
		{"null", `null`, lists.ReasonNotMessage},
		{"a batch in a batch", `[[` + result(`"tools":[]`) + `]]`, lists.ReasonNotMessage},
		{"a string in a batch", `["x"]`, lists.ReasonNotMessage},
		{"result twice", `{"result":{"tools":[]},"result":{"tools":[{"name":"x"}]}}`, lists.ReasonDuplicate},
		{"tools twice", result(`"tools":[],"tools":[{"name":"x"}]`), lists.ReasonDuplicate},
		{"tools twice, once escaped", result(`"tools":[],"t\u006fols":[{"name":"x"}]`), lists.ReasonDuplicate},
		{"name twice", result(`"tools":[{"name":"a","name":"x"}]`), lists.ReasonDuplicate},
		{"duplicate far away", result(`"tools":[],"x":[{"y":{"z":1,"z":2}}]`), lists.ReasonDuplicate},
		{"Result", `{"Result":{"tools":[{"name":"x"}]}}`, lists.ReasonAmbiguous},
		{"result with the long s", `{"re` + "\u017f" + `ult":{"tools":[{"name":"x"}]}}`, lists.ReasonAmbiguous},
		{"Tools", result(`"Tools":[{"name":"x"}]`), lists.ReasonAmbiguous},
		{"tools and a space", result(`"tools ":[{"name":"x"}]`), lists.ReasonAmbiguous},
		{"tools beside TOOLS", result(`"tools":[],"TOOLS":[{"name":"x"}]`), lists.ReasonAmbiguous},
		{"resource templates in snake", result(`"RESOURCETEMPLATES":[]`), lists.ReasonAmbiguous},
		{"cachescope", result(`"tools":[],"cachescope":"public"`), lists.ReasonAmbiguous},
		{"in a batch", `[{},{"Result":{}}]`, lists.ReasonAmbiguous},
		{"tools is an object", result(`"tools":{"0":{"name":"x"}}`), lists.ReasonNotArray},
		{"tools is a string", result(`"tools":"x"`), lists.ReasonNotArray},
		{"prompts is true", result(`"tools":[],"prompts":true`), lists.ReasonNotArray},
		{"too deep", result(`"x":` + deep(63)), lists.ReasonTooDeep},
		{"too deep in an item", result(`"tools":[{"name":"a","x":` + deep(61) + `}]`), lists.ReasonTooDeep},
		{"a bomb", strings.Repeat("[", 1<<20), lists.ReasonTooDeep},
		{"a bomb in a result", `{"result":` + strings.Repeat(`{"a":`, 1<<18), lists.ReasonTooDeep},
		{"too long", result(`"tools":[]`) + strings.Repeat(" ", lists.Most), lists.ReasonTooLong},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, hidden, err := hiding("x").Message([]byte(test.in))
			refused, ok := errors.AsType[*lists.Refusal](err)
			if !ok || got != nil || hidden != 0 {
				t.Fatalf("got %.100q, %d, %v", got, hidden, err)
			}
			if refused.Reason != test.want {
				t.Errorf("refused for %s, want %s", refused.Reason, test.want)
			}
		})
	}
	fits := result(`"x":` + deep(62))
	if _, _, err := hiding().Message([]byte(fits)); err != nil {
		t.Errorf("64 levels: %v", err)
	}
	if _, _, err := hiding().Message([]byte(fits + strings.Repeat(" ", lists.Most-len(fits)))); err != nil {
		t.Errorf("%d bytes: %v", lists.Most, err)
	}
}

// A refusal is told to operators: nothing of the answer may come with it.
func TestRefusalNeverQuotesTheAnswer(t *testing.T) {
	for _, in := range []string{`CANARY`, `{"CANARY":1,"CANARY":2}`, result(`"tools":[{"name":"CANARY"`), result(`"Tools":"CANARY"`)} {
		if _, _, err := hiding().Message([]byte(in)); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestMessageEndsWithAnErrorOfShow(t *testing.T) {
	broken := errors.New("broken")
	f := lists.Filter{Show: func(kind lists.Kind, _ []lists.Item) ([]bool, error) {
		if kind == lists.Prompts {
			return nil, broken
		}
		return []bool{true}, nil
	}}
	got, _, err := f.Message([]byte(result(`"tools":[{"name":"a"}],"prompts":[{"name":"b"}]`)))
	if !errors.Is(err, broken) || got != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

// Show is told whole items, a list at a time, and nothing of what is refused.
func TestMessageAsksOncePerList(t *testing.T) {
	var asked []string
	f := lists.Filter{Show: func(kind lists.Kind, items []lists.Item) ([]bool, error) {
		text := string(kind)
		for _, item := range items {
			text += " " + item.Name + "=" + string(item.Value)
		}
		asked = append(asked, text)
		return make([]bool, len(items)), nil
	}}
	in := `[` + result(`"tools":[ {"name":"a","x":[1, 2]} ,7,{"y":{},"name":"\"b\""}],"prompts":[{}]`) + `,` + result(`"resourceTemplates":[{"uriTemplate":"file:///{a}"}]`) + `]`
	if _, _, err := f.Message([]byte(in)); err != nil {
		t.Fatal(err)
	}
	want := []string{`tools a={"name":"a","x":[1, 2]} "b"={"y":{},"name":"\"b\""}`, `resourceTemplates file:///{a}={"uriTemplate":"file:///{a}"}`}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	asked = nil
	if _, _, err := f.Message([]byte(in + "x")); err == nil || asked != nil {
		t.Errorf("asked %q about what is refused (%v)", asked, err)
	}
}

func TestPrivate(t *testing.T) {
	f := hiding("x")
	f.Private = true
	for _, test := range []struct{ name, in, want string }{
		{"absent, which means public", result(`"tools":[{"name":"x"}]`), result(`"cacheScope":"private","tools":[]`)},
		{"public", result(`"cacheScope" : "public","ttlMs":5,"tools":[]`), result(`"cacheScope" : "private","ttlMs":5,"tools":[]`)},
		{"public behind the list", result(`"tools":[{"name":"a"},{"name":"x"}],"cacheScope":"public"`), result(`"tools":[{"name":"a"}],"cacheScope":"private"`)},
		{"of another type", result(`"tools":[],"cacheScope":{"a":[1]}`), result(`"tools":[],"cacheScope":"private"`)},
		{"private", result(`"tools":[],"cacheScope":"private"`), result(`"tools":[],"cacheScope":"private"`)},
		{"no list", result(`"cacheScope":"public","contents":[]`), result(`"cacheScope":"public","contents":[]`)},
		{"not in a result", `{"cacheScope":"public","tools":[]}`, `{"cacheScope":"public","tools":[]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _, err := f.Message([]byte(test.in))
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
	got, _, err := hiding().Message([]byte(result(`"tools":[],"cacheScope":"public"`)))
	if err != nil || !strings.Contains(string(got), `"public"`) {
		t.Errorf("before the modern era: %s, %v", got, err)
	}
}
