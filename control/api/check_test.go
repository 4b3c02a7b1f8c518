package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/control/api"
)

// certificate makes a self-signed one.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// repeated is a JSON array of n elements made by format.
func repeated(format string, n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(format, i))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func labelsOf(n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// longText is a JSON string of n characters.
func longText(n int) string { return strconv.Quote(strings.Repeat("x", n)) }

// fieldTest is one field over a server that is good without it. An empty want
// accepts, else it is the field that is at fault.
type fieldTest struct{ name, field, value, want string }

func runFieldTests(t *testing.T, tests []fieldTest) {
	t.Helper()
	f := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			fields := map[string]json.RawMessage{"name": json.RawMessage(`"demo"`), "mcp": json.RawMessage(`"http://h"`)}
			fields[test.field] = json.RawMessage(test.value)
			body, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			got := f.do("POST", "/api/v1/servers", string(body))
			if test.want == "" {
				var made api.ChangedServer
				got.want(http.StatusCreated, &made)
				f.do("DELETE", "/api/v1/servers/"+made.ID, "").want(http.StatusOK, nil)
				return
			}
			problem := got.wantProblem(http.StatusBadRequest, "")
			if problem.Errors[0].Field != test.want || problem.Errors[0].Detail == "" {
				t.Errorf("faults %+v, want one of %q", problem.Errors, test.want)
			}
		})
	}
}

func TestServerName(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"name", "name", `"a server/1 – ü"`, ""},
		{"longest name", "name", longText(100), ""},
		{"name of no text", "name", `1`, "name"},
		{"empty name", "name", `""`, "name"},
		{"null name", "name", `null`, "name"},
		{"too long name", "name", longText(101), "name"},
		{"control character in name", "name", `"a\u0007b"`, "name"},
		{"newline in name", "name", `"a\nb"`, "name"},
		{"direction override in name", "name", `"a\u202eb"`, "name"},
		{"no-break space in name", "name", `"a\u00a0b"`, "name"},
		{"space before name", "name", `" a"`, "name"},
		{"name is a UUID", "name", `"0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"`, "name"},
		{"name is a UUID in upper case", "name", `"0190B6A1-7F3E-4C1D-9A2B-3C4D5E6F7081"`, "name"},
		{"name is a UUID without dashes", "name", `"0190b6a17f3e4c1d9a2b3c4d5e6f7081"`, "name"},
		{"name is a UUID in braces", "name", `"{0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081}"`, "name"},
		{"name is a UUID as URN", "name", `"urn:uuid:0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081"`, "name"},
	})
}

func TestServerUpstreams(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"mcp by address", "mcp", `"http://10.1.2.3:8080/base"`, ""},
		{"mcp of another scheme", "mcp", `"ftp://h/"`, "mcp"},
		{"mcp with a password", "mcp", `"http://u:p@h/"`, "mcp"},
		{"mcp with a query", "mcp", `"http://h/?a=b"`, "mcp"},
		{"mcp and rpc missing", "mcp", `null`, "mcp"},
		{"rpc", "rpc", `"https://h/rpc"`, ""},
		{"rpc that is no URL", "rpc", `"h"`, "rpc"},
		{"rpc of no text", "rpc", `[]`, "rpc"},
	})
}

func TestServerCA(t *testing.T) {
	ca := certificate(t)
	key := strings.ReplaceAll(ca, "CERTIFICATE", "PRIVATE KEY")
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	runFieldTests(t, []fieldTest{
		{"ca", "ca", strconv.Quote("a comment\n" + ca + ca), ""},
		{"ca of nothing", "ca", `"hello"`, "ca"},
		{"ca with a private key", "ca", strconv.Quote(ca + key), "ca"},
		{"ca with a broken certificate", "ca", strconv.Quote(ca + broken), "ca"},
		{"ca that is cut", "ca", strconv.Quote(ca + ca[:len(ca)/2]), "ca"},
		{"ca that is too long", "ca", strconv.Quote(ca + strings.Repeat("#", 48<<10)), "ca"},
	})
}

func TestServerEras(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"eras legacy", "eras", `["legacy"]`, ""},
		{"eras both", "eras", `["modern","legacy"]`, ""},
		{"eras null", "eras", `null`, ""},
		{"no eras", "eras", `[]`, "eras"},
		{"unknown era", "eras", `["legacy","future"]`, "eras.1"},
		{"era twice", "eras", `["legacy","legacy"]`, "eras.1"},
		{"eras as text", "eras", `"legacy"`, "eras"},
	})
}

func TestServerOrigins(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"origins", "allowed_origins", `["https://a.example","http://127.0.0.1:3000","http://[::1]:1","vscode-webview://x"]`, ""},
		{"most origins", "allowed_origins", repeated(`"https://h%d"`, 32), ""},
		{"too many origins", "allowed_origins", repeated(`"https://h%d"`, 33), "allowed_origins"},
		{"origin null", "allowed_origins", `["null"]`, "allowed_origins.0"},
		{"origin of null", "allowed_origins", `[null]`, "allowed_origins.0"},
		{"every origin", "allowed_origins", `["*"]`, "allowed_origins.0"},
		{"origin with a wildcard", "allowed_origins", `["https://*.example"]`, "allowed_origins.0"},
		{"origin without scheme", "allowed_origins", `["a.example"]`, "allowed_origins.0"},
		{"origin without host", "allowed_origins", `["https://"]`, "allowed_origins.0"},
		{"origin with a path", "allowed_origins", `["https://a.example/"]`, "allowed_origins.0"},
		{"origin in upper case", "allowed_origins", `["https://A.example"]`, "allowed_origins.0"},
		{"origin scheme in upper case", "allowed_origins", `["HTTPS://a.example"]`, "allowed_origins.0"},
		{"origin with user", "allowed_origins", `["https://u@a.example"]`, "allowed_origins.0"},
		{"origin with its own port", "allowed_origins", `["https://a.example:443"]`, "allowed_origins.0"},
		{"origin with port 0", "allowed_origins", `["https://a.example:0"]`, "allowed_origins.0"},
		{"origin with a long port", "allowed_origins", `["https://a.example:070"]`, "allowed_origins.0"},
		{"origin with no port", "allowed_origins", `["https://a.example:"]`, "allowed_origins.0"},
		{"origin with a bad address", "allowed_origins", `["https://[::zz]"]`, "allowed_origins.0"},
		{"origin with a long address", "allowed_origins", `["https://[0::1]"]`, "allowed_origins.0"},
		{"origin with a space", "allowed_origins", `["https://a b"]`, "allowed_origins.0"},
		{"too long origin", "allowed_origins", `["https://` + strings.Repeat("x", 300) + `"]`, "allowed_origins.0"},
		{"origin twice", "allowed_origins", `["https://a","https://a"]`, "allowed_origins.1"},
	})
}

func TestServerLabels(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"labels", "labels", `{"team/a.b-c_d":"ü x","empty":""}`, ""},
		{"most labels", "labels", labelsOf(32), ""},
		{"too many labels", "labels", labelsOf(33), "labels"},
		{"empty label", "labels", `{"":"x"}`, "labels."},
		{"label with a space", "labels", `{"a b":"x"}`, "labels.a b"},
		{"too long label", "labels", `{"` + strings.Repeat("k", 64) + `":"x"}`, "labels." + strings.Repeat("k", 64)},
		{"too long label value", "labels", `{"a":` + longText(257) + `}`, "labels.a"},
		{"control character in label value", "labels", `{"a":"\u0000"}`, "labels.a"},
		{"label of no text", "labels", `{"a":1}`, "labels.a"},
		{"labels as array", "labels", `[]`, "labels"},
	})
}

func TestServerLimits(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"limits", "limits", `{"max_body":1024,"call_limit_seconds":1}`, ""},
		{"largest limits", "limits", `{"max_body":4194304,"call_limit_seconds":86400}`, ""},
		{"limits null", "limits", `null`, ""},
		{"small max_body", "limits", `{"max_body":1023}`, "limits.max_body"},
		{"large max_body", "limits", `{"max_body":4194305}`, "limits.max_body"},
		{"huge max_body", "limits", `{"max_body":99999999999999999999}`, "limits.max_body"},
		{"max_body of text", "limits", `{"max_body":"1"}`, "limits.max_body"},
		{"max_body with a fraction", "limits", `{"max_body":2048.5}`, "limits.max_body"},
		{"short call limit", "limits", `{"call_limit_seconds":0}`, "limits.call_limit_seconds"},
		{"long call limit", "limits", `{"call_limit_seconds":86401}`, "limits.call_limit_seconds"},
		{"overflowing call limit", "limits", `{"call_limit_seconds":9223372036854775807}`, "limits.call_limit_seconds"},
	})
}

func TestServerBatchesAndDenials(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"batches", "batches", `true`, ""},
		{"batches of text", "batches", `"yes"`, "batches"},
		{"denials", "denials", `"http"`, ""},
		{"denials null", "denials", `null`, ""},
		{"unknown denials", "denials", `"x"`, "denials"},
	})
}

func TestServerHeaders(t *testing.T) {
	runFieldTests(t, []fieldTest{
		{"header", "headers", `[{"name":"Authorization","value":"Bearer abc def"}]`, ""},
		{"longest header", "headers", `[{"name":"X-Key","value":` + longText(8<<10) + `}]`, ""},
		{"most headers", "headers", repeated(`{"name":"X-%d","value":"v"}`, 32), ""},
		{"too many headers", "headers", repeated(`{"name":"X-%d","value":"v"}`, 33), "headers"},
		{"header twice", "headers", `[{"name":"X-Key","value":"v"},{"name":"x-key","value":"w"}]`, "headers.1.name"},
		{"header without name", "headers", `[{"value":"v"}]`, "headers.0.name"},
		{"header without value", "headers", `[{"name":"X-Key"}]`, "headers.0.value"},
		{"header of null", "headers", `[null]`, "headers.0.name"},
		{"too long header value", "headers", `[{"name":"X-Key","value":` + longText(8<<10+1) + `}]`, "headers.0.value"},
		{"too long header name", "headers", `[{"name":` + longText(129) + `,"value":"v"}]`, "headers.0.name"},
		{"CR in header value", "headers", `[{"name":"X-Key","value":"a\rb"}]`, "headers.0.value"},
		{"LF in header value", "headers", `[{"name":"X-Key","value":"a\nX-Arbiter-Server: b"}]`, "headers.0.value"},
		{"NUL in header value", "headers", `[{"name":"X-Key","value":"a\u0000"}]`, "headers.0.value"},
		{"DEL in header value", "headers", `[{"name":"X-Key","value":"a\u007f"}]`, "headers.0.value"},
		{"text beyond ASCII in header value", "headers", `[{"name":"X-Key","value":"ü"}]`, "headers.0.value"},
		{"line end after header value", "headers", `[{"name":"X-Key","value":"a\n"}]`, "headers.0.value"},
		{"space before header value", "headers", `[{"name":"X-Key","value":" a"}]`, "headers.0.value"},
		{"header value of no text", "headers", `[{"name":"X-Key","value":1}]`, "headers.0.value"},
	})
}

func TestCreateServerRejectsReservedHeaders(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{
		"Connection", "keep-alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authorization", "Proxy-Connection",
		"Host", ":authority", "Content-Length", "content-type", "Content-Encoding", "Content-X",
		"Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Param-X", "X-Arbiter-Server", "x-arbiter-principal-id", "Arbiter-Decision",
		"X-Envoy-Original-Path", "X-Forwarded-For", "x-forwarded-client-cert", "Forwarded", "Via", "Cookie", "Set-Cookie",
		"Accept", "Accept-Encoding", "Last-Event-ID", "Expect", "Origin", "Access-Control-Allow-Origin", "Sec-Fetch-Site",
		"X_Arbiter_Server", "x-arbiter_server", "Mcp_Session_Id", "Content_Length", "transfer_encoding",
		"X Key", "X-Key:", "X-Kéy", "X-Key\r\nHost", "",
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			body := fmt.Sprintf(`{"name":"demo","mcp":"http://h","headers":[{"name":%s,"value":"canary"}]}`, quoted)
			got := f.do("POST", "/api/v1/servers", body)
			if p := got.wantProblem(http.StatusBadRequest, ""); p.Errors[0].Field != "headers.0.name" {
				t.Errorf("faults %+v", p.Errors)
			}
			if strings.Contains(string(got.body)+f.log.String(), "canary") {
				t.Error("the value is in the answer or in the log")
			}
		})
	}
}

func TestCreateServerSaysThatNullIsNoOrigin(t *testing.T) {
	newFixture(t).do("POST", "/api/v1/servers", `{"name":"x","mcp":"http://h","allowed_origins":["null"]}`).
		wantProblem(http.StatusBadRequest, "null is no one's origin")
}

func TestCreateServerNamesAllFaultsAtOnce(t *testing.T) {
	f := newFixture(t)
	p := f.do("POST", "/api/v1/servers",
		`{"mcp":"ftp://x","eras":[],"limits":{"max_body":1,"call_limit_seconds":0},"headers":[{"name":"Host","value":""}]}`).
		wantProblem(http.StatusBadRequest, "nothing was changed")
	var fields []string
	for _, fault := range p.Errors {
		fields = append(fields, fault.Field)
	}
	want := "eras limits.call_limit_seconds name mcp limits.max_body headers.0.name headers.0.value"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("faults of %s, want %s", got, want)
	}
}

func TestTokenFields(t *testing.T) {
	long := strings.Repeat("x", 128)
	f := newFixture(t)
	for _, test := range []struct{ name, body, want string }{
		{"nothing", `{}`, ""},
		{"nulls", `{"name":null,"scopes":null,"expires_at":null,"expires_in":null}`, ""},
		{"name", `{"name":"build agent 7"}`, ""},
		{"too long name", `{"name":"` + strings.Repeat("x", 101) + `"}`, "name"},
		{"control character in name", `{"name":"a\u001bb"}`, "name"},
		{"all scopes", `{"scopes":["mcp:connect","tools:call","tools:call:echo","identity:bootstrap"]}`, ""},
		{"longest tool", `{"scopes":["tools:call:` + long + `"]}`, ""},
		{"too long tool", `{"scopes":["tools:call:` + long + `x"]}`, "scopes.0"},
		{"no scopes", `{"scopes":[]}`, "scopes"},
		{"too many scopes", `{"scopes":` + repeated(`"tools:call:t%d"`, 65) + `}`, "scopes"},
		{"unknown scope", `{"scopes":["tools:call","admin"]}`, "scopes.1"},
		{"scope in another case", `{"scopes":["Tools:Call"]}`, "scopes.0"},
		{"scope without tool", `{"scopes":["tools:call:"]}`, "scopes.0"},
		{"scope with a space", `{"scopes":["tools:call:a b"]}`, "scopes.0"},
		{"scope with a quote", `{"scopes":["tools:call:a\""]}`, "scopes.0"},
		{"empty scope", `{"scopes":[""]}`, "scopes.0"},
		{"scope of null", `{"scopes":[null]}`, "scopes.0"},
		{"scope twice", `{"scopes":["tools:call","tools:call"]}`, "scopes.1"},
		{"scopes as text", `{"scopes":"tools:call"}`, "scopes"},
		{"expires_at", `{"expires_at":"2026-11-21T12:00:01Z"}`, ""},
		{"expires_at with offset", `{"expires_at":"2026-11-21T14:00:01+02:00"}`, ""},
		{"expires_at is now", `{"expires_at":"2026-11-21T12:00:00Z"}`, "expires_at"},
		{"expires_at is past", `{"expires_at":"2020-01-01T00:00:00Z"}`, "expires_at"},
		{"expires_at is far", `{"expires_at":"2036-11-30T00:00:00Z"}`, "expires_at"},
		{"expires_at is very far", `{"expires_at":"9999-11-30T00:00:00Z"}`, "expires_at"},
		{"expires_at without zone", `{"expires_at":"2027-01-01T00:00:00"}`, "expires_at"},
		{"expires_at of a number", `{"expires_at":1900000000}`, "expires_at"},
		{"expires_in", `{"expires_in":1}`, ""},
		{"longest expires_in", `{"expires_in":315360000}`, ""},
		{"too long expires_in", `{"expires_in":315360001}`, "expires_in"},
		{"overflowing expires_in", `{"expires_in":9223372036854775807}`, "expires_in"},
		{"expires_in 0", `{"expires_in":0}`, "expires_in"},
		{"negative expires_in", `{"expires_in":-1}`, "expires_in"},
		{"expires_in of text", `{"expires_in":"30d"}`, "expires_in"},
		{"both", `{"expires_in":5,"expires_at":"2027-01-01T00:00:00Z"}`, "expires_in"},
		{"a value of one's own", `{"token":"arb_at_x"}`, "token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.t = t
			srv := f.create(plainServer)
			defer func() { f.do("DELETE", "/api/v1/servers/"+srv.ID, "").want(http.StatusOK, nil) }()
			got := f.do("POST", "/api/v1/servers/"+srv.ID+"/tokens", test.body)
			if test.want == "" {
				got.want(http.StatusCreated, nil)
				return
			}
			if p := got.wantProblem(http.StatusBadRequest, ""); p.Errors[0].Field != test.want {
				t.Errorf("faults %+v, want one of %q", p.Errors, test.want)
			}
			var list api.List[api.Token]
			if f.do("GET", "/api/v1/servers/"+srv.ID+"/tokens", "").want(200, &list); len(list.Items) != 0 {
				t.Error("a token was made")
			}
		})
	}
}
