package jsonrpc_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
)

func TestDecodeHeader(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"plain", "us-west1", "us-west1"},
		{"empty", "", ""},
		{"URI", "file:///projects/my app/config.json", "file:///projects/my app/config.json"},
		{"blanks around", " \tfoo\t ", "foo"},
		{"tab inside", "a\tb", "a\tb"},
		{"not ASCII", "=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"},
		{"padded text", "=?base64?IHBhZGRlZCA=?=", " padded "},
		{"line break", "=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"},
		{"looks encoded", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="},
		{"needlessly encoded", "=?base64?Zm9v?=", "foo"},
		{"encoded empty", "=?base64??=", ""},
		{"start only", "=?base64?Zm9v", "=?base64?Zm9v"},
		{"end only", "Zm9v?=", "Zm9v?="},
		{"upper case is no marker", "=?BASE64?Zm9v?=", "=?BASE64?Zm9v?="},
		{"mail's form is no marker", "=?utf-8?B?Zm9v?=", "=?utf-8?B?Zm9v?="},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := jsonrpc.DecodeHeader(test.value)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestDecodeHeaderRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"raw UTF-8":              "h\u00e9",
		"control":                "a\x01b",
		"NUL":                    "a\x00",
		"DEL":                    "a\x7f",
		"line break":             "a\r\nb",
		"markers overlap":        "=?base64?=",
		"no padding":             "=?base64?Zm8?=",
		"stray bits":             "=?base64?Zm9=?=",
		"URL alphabet":           "=?base64?_-8=?=",
		"line break in base64":   "=?base64?Zm\r\n9v?=",
		"blank in base64":        "=?base64?Zm 9v?=",
		"no base64":              "=?base64?*?=",
		"two words":              "=?base64?Zm9v?==?base64?Zm9v?=",
		"invalid UTF-8 inside":   "=?base64?/w==?=",
		"surrogate inside":       "=?base64?7aCA?=",
		"bytes behind a padding": "=?base64?Zm8=Zm8=?=",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := jsonrpc.DecodeHeader(value); !errors.Is(err, jsonrpc.ErrHeader) || got != "" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func FuzzDecodeHeader(f *testing.F) {
	for _, seed := range []string{"", "foo", "=?base64?Zm9v?=", "=?base64?=", "=?base64??=", "=?base64?/w==?=", " a ", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := jsonrpc.DecodeHeader(value)
		if err != nil {
			if !errors.Is(err, jsonrpc.ErrHeader) || got != "" {
				t.Fatalf("%q: %q, %v", value, got, err)
			}
			return
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q: %q is no UTF-8", value, got)
		}
		// There is one plain and one encoded form of each text.
		trimmed := strings.Trim(value, " \t")
		encoded := "=?base64?" + base64.StdEncoding.EncodeToString([]byte(got)) + "?="
		if trimmed != got && trimmed != encoded {
			t.Fatalf("%q: %q is neither itself nor %q", value, got, encoded)
		}
		if again, err := jsonrpc.DecodeHeader(encoded); err != nil || again != got {
			t.Fatalf("%q: %q, %v", encoded, again, err)
		}
	})
}

func TestHasNameHeader(t *testing.T) {
	for method, want := range map[string]bool{
		"tools/call": true, "prompts/get": true, "resources/read": true, "tasks/get": true, "tasks/update": true, "tasks/cancel": true,
		"tasks/result": false, "tasks/list": false, "tools/list": false, "resources/subscribe": false, "completion/complete": false,
		"logging/setLevel": false, "server/discover": false, "initialize": false, "Tools/Call": false, "": false,
	} {
		if got := jsonrpc.HasNameHeader(method); got != want {
			t.Errorf("HasNameHeader(%q) = %v", method, got)
		}
	}
}
