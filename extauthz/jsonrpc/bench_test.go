package jsonrpc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

// call is a tools/call of about 1 KiB as a modern client sends it.
func call() []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{"name":"create_issue","arguments":{`+
		`"owner":"arbiter-gateway","repository":"arbiter","title":"The session ends after a refresh","labels":["bug","session","sdk"],`+
		`"milestone":{"number":3,"due":"2026-09-30"},"draft":false,"priority":2,"body":%q},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},`+
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{}},"progressToken":17}}}`,
		strings.Repeat("It worked yesterday. ", 23))
}

func BenchmarkParse(b *testing.B) {
	body := call()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsonrpc.Parse(body, jsonrpc.Rules{Batch: true, Responses: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// Bodies made to be slow: the cost per byte has to stay that of an honest one.
func BenchmarkParseHostile(b *testing.B) {
	bodies := map[string][]byte{
		"ascii keys":    manyKeys(`k%06d`, 300_000),
		"unicode keys":  manyKeys(`É%05d`, 300_000),
		"escaped keys":  manyKeys(`\u00c9%04d`, 250_000),
		"small objects": smallObjects(),
	}
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jsonrpc.Parse(body, jsonrpc.Rules{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyKeys is a tools/call whose arguments have n different keys.
func manyKeys(pattern string, n int) []byte {
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{`)
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `"`+pattern+`":0`, i)
	}
	return append(body, `}}}`...)
}

// smallObjects is a tools/call with many objects of just under the number of
// keys from which a map is used.
func smallObjects() []byte {
	object := "{"
	for i := range 16 {
		object += fmt.Sprintf(`"%x":0,`, i)
	}
	object = strings.TrimSuffix(object, ",") + "}"
	objects := strings.TrimSuffix(strings.Repeat(object+",", 40_000), ",")
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":[` + objects + `]}}}`)
}
