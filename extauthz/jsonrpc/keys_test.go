package jsonrpc_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// disguises are spellings that some JSON readers take for key.
func disguises(key string) []string {
	return []string{
		strings.ToUpper(key[:1]) + key[1:] + "\u200b",
		strings.ToUpper(key), " " + key, key + " ", key + "\t", "\n" + key, key + "\u00a0", key + "\u3000",
		key + "\x00", "\x00" + key, "\u200b" + key, key + "\u200d", "\ufeff" + key, key + "\u2060", key + "\u00ad",
		key[:1] + "\u200c" + key[1:], key + "\ufe0f", key + "\u034f", key + "\u3164", "\u202e" + key, key + "\x7f", key + "\u0085",
		strings.NewReplacer("s", "ſ").Replace(key) + "\u200b", strings.NewReplacer("k", "\u212a").Replace(key) + " ",
		strings.NewReplacer("i", "İ").Replace(key) + " ", strings.NewReplacer("i", "ı").Replace(key) + " ",
	}
}

func TestParseRefusesDisguisedKeys(t *testing.T) {
	params := []string{
		"_meta", "name", "arguments", "uri", "taskId", "ref", "level", "protocolVersion", "cursor", "requestId",
		"inputResponses", "requestState", "task", "notifications",
	}
	meta := []string{
		"progressToken", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities",
		"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/logLevel", "io.modelcontextprotocol/subscriptionId", "traceparent",
	}
	for _, key := range []string{"jsonrpc", "id", "method", "params", "result", "error"} {
		for _, disguise := range disguises(key) {
			refuse(t, []refusal{{
				fmt.Sprintf("message %+q", disguise), legacy,
				request(fmt.Sprintf(`"method":"ping",%s:"x"`, quote(disguise))), -32600, "ambiguous_key", "",
			}})
		}
	}
	for _, key := range params {
		for _, disguise := range disguises(key) {
			refuse(t, []refusal{{
				fmt.Sprintf("params %+q", disguise), legacy,
				request(fmt.Sprintf(`"method":"ping","params":{%s:"x"}`, quote(disguise))), -32602, "ambiguous_key", "7",
			}})
		}
	}
	for _, key := range meta {
		for _, disguise := range disguises(key) {
			refuse(t, []refusal{{
				fmt.Sprintf("meta %+q", disguise), legacy,
				request(fmt.Sprintf(`"method":"ping","params":{"_meta":{%s:"x"}}`, quote(disguise))), -32602, "ambiguous_key", "7",
			}})
		}
	}
}

// quote spells a key in JSON with every character that is not a letter escaped.
func quote(key string) string {
	text := `"`
	for _, c := range key {
		if c < ' ' || c == 0x7f || c == '"' || c == '\\' {
			text += fmt.Sprintf(`\u%04x`, c)
		} else {
			text += string(c)
		}
	}
	return text + `"`
}

func TestParseRefusesDisguisedKeysOfWhatDecides(t *testing.T) {
	refuse(t, []refusal{
		{"two names", legacy, tool(`,"Name":"u"`), -32602, "ambiguous_key", "7"},
		{"two names, the other first", legacy, request(`"method":"tools/call","params":{"NAME":"u","name":"t"}`), -32602, "ambiguous_key", "7"},
		{"second message in a folded key", legacy, request(`"method":"ping","Method":"tools/call"`), -32600, "ambiguous_key", ""},
		{"in a ref", legacy, request(`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p","Name":"q"}}`), -32602, "ambiguous_key", "7"},
		{"in subscriptions", opener, request(`"method":"subscriptions/listen","params":{"notifications":{"ResourceSubscriptions":["u"]}}`), -32602, "ambiguous_key", "7"},
		{"in a response", legacy, `{"jsonrpc":"2.0","id":7,"Result":{},"result":{}}`, -32600, "ambiguous_key", ""},
	})
}

// What the protocol does not read is nobody's business.
func TestParseAcceptsDisguisedKeysElsewhere(t *testing.T) {
	for _, body := range []string{
		tool(`,"arguments":{"Name":1,"METHOD":2," id":3,"_Meta":{"ID":1}}`),
		tool(`,"_meta":{"com.example/x":{"Name":1,"name":2},"NAME":1}`),
		tool(`,"x-extension":{"Name":1,"name":2,"name ":3}`),
		tool(`,"names":1,"nam":2,"na-me":3,"nаme":"Cyrillic"`),
		request(`"method":"ping","params":{"ref":{"Name":1,"name":2}}`),
		`{"jsonrpc":"2.0","id":7,"result":{"ID":1,"id":2,"Method":3}}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":1,"Code":2}}`,
	} {
		accept(t, legacy, body)
	}
	accept(t, rpc, request(`"method":"sum","params":[{"Name":1,"name":2}]`))
}

func TestParseRefusesFoldedArguments(t *testing.T) {
	var rows []refusal
	for _, pair := range [][2]string{
		{"path", "Path"}, {"a", "A"}, {"straße", "STRASSE"}, {"ſ", "s"}, {"\u212a", "k"}, {"Å", "\u212b"}, {"σ", "ς"}, {"ﬁ", "fi"}, {"ẞ", "ß"}, {"Ǆ", "ǅ"}, {"Ω", "\u2126"},
	} {
		rows = append(rows,
			refusal{pair[0] + " at the top", legacy, tool(fmt.Sprintf(`,"arguments":{"%s":1,"x":2,"%s":3}`, pair[0], pair[1])), -32602, "ambiguous_argument", "7"},
			refusal{pair[0] + " deeper", legacy, tool(fmt.Sprintf(`,"arguments":{"x":[1,{"y":{"%s":1,"%s":3}}]}`, pair[0], pair[1])), -32602, "ambiguous_argument", "7"})
	}
	many := ""
	for i := range 100 {
		many += fmt.Sprintf(`"k%d":{"x":0},`, i)
	}
	refuse(t, append(rows,
		refusal{"escaped", legacy, tool(`,"arguments":{"a":1,"\u0041":3}`), -32602, "ambiguous_argument", "7"},
		refusal{"around an object", legacy, tool(`,"arguments":{"a":{"b":1},"c":{},"A":{"b":2}}`), -32602, "ambiguous_argument", "7"},
		refusal{"among many, early", legacy, tool(`,"arguments":{` + many + `"K3":1}`), -32602, "ambiguous_argument", "7"},
		refusal{"among many, late", legacy, tool(`,"arguments":{` + many + `"K99":1}`), -32602, "ambiguous_argument", "7"},
		refusal{"inside many", legacy, tool(`,"arguments":{` + many + `"k":{"a":1,"A":2}}`), -32602, "ambiguous_argument", "7"},
		refusal{"two faults, then more keys", legacy, tool(`,"arguments":{"a":1,"A":2,"b":3,"B":4,"c":5}`), -32602, "ambiguous_argument", "7"},
		refusal{"of a prompt", legacy, request(`"method":"prompts/get","params":{"name":"p","arguments":{"a":"1","A":"2"}}`), -32602, "ambiguous_argument", "7"},
		refusal{"of an unknown method", rpc, request(`"method":"m","params":{"arguments":[{"a":"1","A":"2"}]}`), -32602, "ambiguous_argument", "7"},
	))
	accept(t, legacy, tool(`,"arguments":{"a":{"A":{"a":1}},"b":[{"a":1},{"A":1}],"c":{"a":1},"aa":1}`))
	accept(t, legacy, tool(`,"arguments":{`+many+`"l":{"k1":1,"k2":1}}`))
	accept(t, legacy, tool(`,"arguments":{"a":1,"a ":2," a":3,"a\u200b":4,"i":5,"ı":6}`))
	accept(t, legacy, tool(`,"other":{"a":1,"A":2}`))
}

// Every pair of runes that are cases of each other in Go's tables. The two i of
// Turkish are cases of i and I in some languages' tables only, not in Unicode's
// folding.
func TestParseRefusesEveryFoldedPair(t *testing.T) {
	for c := rune(0x21); c <= unicode.MaxRune; c++ {
		for _, other := range []rune{unicode.SimpleFold(c), unicode.ToLower(c), unicode.ToUpper(c), unicode.ToTitle(c)} {
			if other == c || c == 'İ' || c == 'ı' {
				continue
			}
			_, err := jsonrpc.Parse([]byte(tool(fmt.Sprintf(`,"arguments":{"%c":1,"%c":2}`, c, other))), legacy)
			if err == nil {
				t.Errorf("%U and %U pass", c, other)
			}
		}
	}
}

// Every rune that folds to a letter of a key, or is nothing to look at.
func TestParseRefusesEveryDisguisingRune(t *testing.T) {
	for c := rune(1); c <= unicode.MaxRune; c++ {
		hidden := unicode.In(c, unicode.Cf, unicode.Cc, unicode.White_Space, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
		folds := strings.EqualFold(string(c), "k") && c != 'k'
		if !hidden && !folds {
			continue
		}
		key := "tas" + string(c) + "Id"
		if hidden {
			key = "taskId" + string(c)
		}
		if _, err := jsonrpc.Parse([]byte(request(`"method":"ping","params":{`+quote(key)+`:1}`)), legacy); err == nil {
			t.Errorf("%U passes", c)
		}
	}
}

// 300,000 keys, and nobody waits: the time of a body grows with its length.
func TestParseManyKeys(t *testing.T) {
	for _, pattern := range []string{`k%06d`, `É%05d`, `K%06d`} {
		accept(t, legacy, string(manyKeys(pattern, 300_000)))
	}
	last := manyKeys(`k%06d`, 300_000)
	copy(last[len(last)-len(`k000000":0}}}`):], `K000000":0}}}`)
	refuse(t, []refusal{{"the last is the first", legacy, string(last), -32602, "ambiguous_argument", "1"}})
}
