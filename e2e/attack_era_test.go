//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

var (
	legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
	modernVersions = []string{"2026-07-28"}
)

// versionRefused checks the error that makes SDK clients fall back.
func versionRefused(t *testing.T, got reply, requested string, supported ...string) {
	t.Helper()
	refused(t, got, 400, -32022)
	var body struct {
		Error struct {
			Data struct {
				Supported []string `json:"supported"`
				Requested *string  `json:"requested"`
			} `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	data := body.Error.Data
	if !slices.Equal(data.Supported, supported) || data.Requested == nil || *data.Requested != requested {
		t.Errorf("body %s, want supported %q and requested %q", got.body, supported, requested)
	}
}

func TestGatewayRefusesUnknownProtocolVersions(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	for _, version := range []string{"1999-01-01", "2026-07-29", "2026-07-28", "2025-11-25 x", "2025-11-25,2025-06-18", "latest", strings.Repeat("9", 60)} {
		t.Run(version, func(t *testing.T) {
			header := map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": version}
			f.untouched(t, func() {
				got := f.do(t, call{path: f.mcp(), token: f.token, body: rpc("9", "tools/list", ""), header: header})
				versionRefused(t, got, version, legacyVersions...)
				if !strings.Contains(got.body, `"id":9,`) {
					t.Errorf("body %s, want the id 9", got.body)
				}
				versionRefused(t, f.do(t, call{method: "GET", path: f.mcp(), token: f.token, header: header}), version, legacyVersions...)
				versionRefused(t, f.do(t, call{method: "DELETE", path: f.mcp(), token: f.token, header: header}), version, legacyVersions...)
				delete(header, "Mcp-Session-Id")
				versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: initialize, header: header}), version, legacyVersions...)
			})
		})
	}
	t.Run("empty", func(t *testing.T) {
		f.untouched(t, func() {
			versionRefused(t, f.first(t, f.post(f.mcp(), ping, "Mcp-Session-Id: "+session, "MCP-Protocol-Version:")), "", legacyVersions...)
			get := strings.Replace(f.post(f.mcp(), "", "Mcp-Session-Id: "+session, "MCP-Protocol-Version:"), "POST", "GET", 1)
			versionRefused(t, f.first(t, get), "", legacyVersions...)
		})
	})
	for _, version := range append([]string{""}, legacyVersions...) {
		header := map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": version}
		if got := f.do(t, call{path: f.mcp(), token: f.token, body: ping, header: header}); got.status != 200 {
			t.Errorf("version %q: status %d, body %s, want 200", version, got.status, got.body)
		}
	}
}

// What a modern SDK tries first at a legacy server, and what makes it fall back.
func TestGatewayRefusesModernRequestsToALegacyServer(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
	f.untouched(t, func() {
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "tools/list", "{"+modernMeta+"}"), header: modern}), "2026-07-28", legacyVersions...)
		modern["Mcp-Method"] = "server/discover"
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "server/discover", "{"+modernMeta+"}"), header: modern}), "2026-07-28", legacyVersions...)
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "server/discover", "{"+modernMeta+"}")}), "2026-07-28", legacyVersions...)
		versionRefused(t, f.onMCP(t, session, rpc("1", "server/discover", "")), "", legacyVersions...)
		refused(t, f.onMCP(t, session, rpc("1", "tools/list", "{"+modernMeta+"}")), 400, -32020)
		refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "tools/list", "{"+modernMeta+"}")}), 400, -32020)
	})
}

func TestGatewayRefusesLegacyRequestsToAModernServer(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--eras", "modern")
	f.untouched(t, func() {
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: initialize}), "2025-11-25", modernVersions...)
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: ping}), "", modernVersions...)
		for _, version := range []string{"2025-11-25", "1999-01-01"} {
			got := f.do(t, call{path: f.mcp(), token: f.token, body: ping, header: map[string]string{"Mcp-Protocol-Version": version}})
			refused(t, got, 400, -32022)
		}
		modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "initialize"}
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: initialize, header: modern}), "2026-07-28", modernVersions...)
		refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: `{"jsonrpc":"2.0","id":1,"result":{}}`, header: modern}), 400, -32600)
	})
}

// Headers that a proxy would go by, and that the body contradicts.
func TestGatewayRefusesHeadersThatContradictTheBody(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--eras", "legacy,modern")
	session := f.session(t, f.server, f.token)
	encoded := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	toolcall := func(name string) string {
		return rpc("4", "tools/call", fmt.Sprintf(`{"name":%q,%s}`, name, modernMeta))
	}
	list := rpc("4", "tools/list", "{"+modernMeta+"}")
	for _, tt := range []struct {
		name, body, method, tool string
		code                     int // 0: passes
	}{
		{"all is right", toolcall("echo"), "tools/call", "echo", 0},
		{"encoded", toolcall("écho \u202e"), "tools/call", encoded("écho \u202e"), 0},
		{"encoded although plain", toolcall("echo"), encoded("tools/call"), encoded("echo"), 0},
		{"no name needed", list, "tools/list", "", 0},
		{"blanks around", toolcall("echo"), " tools/call\t", "echo", 0},
		{"no method", toolcall("echo"), "", "echo", -32020},
		{"no name", toolcall("echo"), "tools/call", "", -32020},
		{"other method", toolcall("echo"), "tools/list", "echo", -32020},
		{"other tool", toolcall("admin"), "tools/call", "echo", -32020},
		{"other case", toolcall("echo"), "Tools/Call", "echo", -32020},
		{"other case of the tool", toolcall("echo"), "tools/call", "Echo", -32020},
		{"encoded other tool", toolcall("admin"), "tools/call", encoded("echo"), -32020},
		{"encoded with a line break", toolcall("echo"), "tools/call", "=?base64?ZWNo bw==?=", -32020},
		{"encoded without padding", toolcall("echo"), "tools/call", "=?base64?ZWNobw?=", -32020},
		{"encoded with stray bits", toolcall("echo"), "tools/call", "=?base64?ZWNobx==?=", -32020},
		{"encoded twice", toolcall("echo"), "tools/call", encoded(encoded("echo")), -32020},
		{"another encoding", toolcall("echo"), "tools/call", "=?utf-8?B?ZWNobw==?=", -32020},
		{"marker in upper case", toolcall("echo"), "tools/call", "=?BASE64?ZWNobw==?=", -32020},
		{"the name is the encoding itself", toolcall(encoded("echo")), "tools/call", encoded("echo"), -32020},
		{"two in one", toolcall("echo"), "tools/call", "echo,admin", -32020},
		{"prompt", rpc("4", "prompts/get", `{"name":"b",`+modernMeta+`}`), "prompts/get", "a", -32020},
		{"resource", rpc("4", "resources/read", `{"uri":"file:///b",`+modernMeta+`}`), "resources/read", "file:///a", -32020},
		{"task", rpc("4", "tasks/cancel", `{"taskId":"b",`+modernMeta+`}`), "tasks/cancel", "a", -32020},
		{"no meta", rpc("4", "tools/list", ""), "tools/list", "", -32602},
		{"meta without version", rpc("4", "tools/list", `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`), "tools/list", "", -32602},
		{"meta without capabilities", rpc("4", "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), "tools/list", "", -32602},
		{"capabilities as null", strings.Replace(list, "{}", "null", 1), "tools/list", "", -32602},
		{"version as number", strings.Replace(list, `"2026-07-28"`, "2026", 1), "tools/list", "", -32602},
		{"meta of a legacy version", strings.Replace(list, "2026-07-28", "2025-11-25", 1), "tools/list", "", -32020},
		{"meta of an unknown version", strings.Replace(list, "2026-07-28", "2026-07-29", 1), "tools/list", "", -32020},
		{"a batch", "[" + list + "]", "tools/list", "", -32600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := call{path: f.mcp(), token: f.token, body: tt.body, header: map[string]string{
				"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": tt.method, "Mcp-Name": tt.tool, "Mcp-Session-Id": session, "Last-Event-Id": "7", "Mcp-Param-Region": "eu",
			}}
			if tt.code == 0 {
				r := f.seen(t, c)
				if len(r.Values("Mcp-Session-Id"))+len(r.Values("Last-Event-Id")) > 0 || r.Value("Mcp-Param-Region") != "eu" || r.Value("Mcp-Method") == "" {
					t.Errorf("the upstream saw %q", r.Fields)
				}
				return
			}
			f.untouched(t, func() {
				got := f.do(t, c)
				refused(t, got, 400, tt.code)
				if tt.code != -32600 && !strings.Contains(got.body, `"id":4,`) {
					t.Errorf("body %s, want the id 4", got.body)
				}
			})
		})
	}
	t.Run("in the legacy era too", func(t *testing.T) {
		f.untouched(t, func() {
			for name, header := range map[string][2]string{"method": {"Mcp-Method", "tools/list"}, "name": {"Mcp-Name", "echo"}, "empty": {"Mcp-Name", " "}} {
				got := f.do(t, call{path: f.mcp(), token: f.token, body: rpc("4", "tools/call", `{"name":"admin"}`), header: map[string]string{"Mcp-Session-Id": session, header[0]: header[1]}})
				if got.status != 400 || got.code() != -32020 {
					t.Errorf("%s: status %d, body %s", name, got.status, got.body)
				}
			}
			refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: initialize, header: map[string]string{"Mcp-Method": "tools/list"}}), 400, -32020)
			notification := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{` + modernMeta + `}}`
			refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: notification, header: map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "x"}}), 400, -32020)
		})
	})
	t.Run("a notification needs none", func(t *testing.T) {
		f.seen(t, call{path: f.mcp(), token: f.token, body: `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, header: map[string]string{"Mcp-Protocol-Version": "2026-07-28"}})
	})
}

// A server of both eras: the version header alone tells which rules hold, and
// the modern ones are no way around the session of the others.
func TestGatewayKeepsTheErasApart(t *testing.T) {
	t.Parallel()
	f := newFront(t, "--eras", "legacy,modern")
	modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28"}
	f.untouched(t, func() {
		refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "tools/list", "{"+modernMeta+"}")}), 400, -32020)
		refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "tools/list", ""), header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}), 400, -32600)
		refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "tools/list", "{"+modernMeta+"}"), header: map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Mcp-Method": "tools/list"}}), 400, -32020)
		for _, method := range []string{"GET", "DELETE"} {
			refused(t, f.do(t, call{method: method, path: f.mcp(), token: f.token, header: modern}), 405, 0)
		}
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: initialize, header: modern}), "2026-07-28", append(modernVersions, legacyVersions...)...)
		versionRefused(t, f.do(t, call{path: f.mcp(), token: f.token, body: rpc("1", "server/discover", "")}), "", append(modernVersions, legacyVersions...)...)
	})
	_, narrow := f.addToken(t, f.server, "--scope", "identity:bootstrap")
	modern["Mcp-Method"] = "server/discover"
	f.seen(t, call{path: f.mcp(), token: narrow, body: rpc("1", "server/discover", "{"+modernMeta+"}"), header: modern}) // never denied
	f.session(t, f.server, f.token)
}
