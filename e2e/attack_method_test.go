//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

func TestGatewayRefusesMethods(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	modern := newFront(t, "--eras", "modern")
	both := newFront(t, "--eras", "legacy,modern")
	for _, tt := range []struct {
		f           front
		path, allow string
		header      map[string]string
	}{
		{f, f.rpc(), "POST", nil},
		{f, f.mcp(), "POST, GET, DELETE", nil},
		{f, f.mcp(), "POST, GET, DELETE", map[string]string{"Mcp-Protocol-Version": "2026-07-28"}},
		{modern, modern.mcp(), "POST", nil},
		{both, both.mcp(), "POST, GET, DELETE", nil},
		{both, both.mcp(), "POST", map[string]string{"Mcp-Protocol-Version": "2026-07-28"}},
	} {
		for _, method := range []string{"GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"} {
			if strings.Contains(tt.allow, method) {
				continue
			}
			t.Run(method+tt.path[len(tt.path)-4:], func(t *testing.T) {
				tt.f.untouched(t, func() {
					for _, http2 := range []bool{false, true} {
						got := tt.f.do(t, call{method: method, path: tt.path, token: tt.f.token, header: tt.header, http2: http2})
						refused(t, got, 405, 0)
						if allow := got.header.Values("Allow"); len(allow) != 1 || allow[0] != tt.allow {
							t.Errorf("allow %q, want %q", allow, tt.allow)
						}
					}
				})
			})
		}
	}
}

// Methods that would open a tunnel, or that no server knows.
func TestGatewayOpensNoTunnels(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	auth := "Authorization: Bearer " + f.token
	for name, request := range map[string]string{
		"CONNECT to the upstream": f.head("CONNECT", f.echo.Addr(), "Host: "+f.authority(), auth) + "\r\n",
		"CONNECT to itself":       f.head("CONNECT", f.authority(), "Host: "+f.authority(), auth) + "\r\n",
		"CONNECT with a path":     f.head("CONNECT", f.rpc(), "Host: "+f.authority(), auth) + "\r\n",
		"PRI of HTTP/2":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"unknown method":          f.head("FOO", f.rpc(), "Host: "+f.authority(), auth) + "\r\n",
		"lower case":              strings.Replace(f.post(f.rpc(), ping), "POST", "post", 1),
		"WebSocket": f.head("GET", f.mcp(), "Host: "+f.authority(), auth, "Accept: text/event-stream", "Connection: upgrade", "Upgrade: websocket",
			"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==") + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f.untouched(t, func() {
				for _, got := range f.wire(t, request) {
					if got.status < 400 {
						t.Errorf("status %d, body %s", got.status, got.body)
					}
				}
			})
		})
	}
	t.Run("h2c is not taken up", func(t *testing.T) {
		f.echo.Reset()
		for _, got := range f.wire(t, f.post(f.rpc(), ping, "Connection: upgrade, http2-settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")) {
			if got.status == 101 {
				t.Error("the gateway switched protocols")
			}
		}
		for _, r := range f.echo.Requests() {
			if len(r.Values("Upgrade")) > 0 || len(r.Values("Http2-Settings")) > 0 || string(r.Body) != ping {
				t.Errorf("the upstream saw %q", r.Fields)
			}
		}
	})
	for name, fields := range map[string][][2]string{
		"CONNECT":            {{":method", "CONNECT"}, {":authority", f.echo.Addr()}, {"authorization", "Bearer " + f.token}},
		"extended CONNECT":   append([][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}}, f.fields("GET", f.mcp())[1:]...),
		"CONNECT and a path": f.fields("CONNECT", f.rpc()),
		"two methods":        append([][2]string{{":method", "POST"}}, f.fields("GET", f.rpc())...),
		"two paths":          append([][2]string{{":path", "/admin"}}, f.fields("POST", f.rpc())...),
		"method behind":      append(f.fields("POST", f.rpc())[1:], [2]string{":method", "POST"}),
		"upper case name":    f.fields("POST", f.rpc(), [2]string{"X-Upper", "1"}),
		"connection header":  f.fields("POST", f.rpc(), [2]string{"connection", "keep-alive"}),
		"transfer-encoding":  f.fields("POST", f.rpc(), [2]string{"transfer-encoding", "chunked"}),
		"te":                 f.fields("POST", f.rpc(), [2]string{"te", "gzip"}),
		"unknown pseudo":     append([][2]string{{":status", "200"}}, f.fields("POST", f.rpc())...),
		"length too short":   f.fields("POST", f.rpc(), [2]string{"content-length", "10"}),
		"length too long":    f.fields("POST", f.rpc(), [2]string{"content-length", "100"}),
		"line break":         f.fields("POST", f.rpc(), [2]string{"x-a", "b\r\nx-arbiter-server: x"}),
		"NUL":                f.fields("POST", f.rpc(), [2]string{"x-a", "b\x00c"}),
		"empty name":         f.fields("POST", f.rpc(), [2]string{"", "x"}),
		"space in a name":    f.fields("POST", f.rpc(), [2]string{"x-arbiter-server ", "x"}),
		"colon in a name":    f.fields("POST", f.rpc(), [2]string{"x-a:b", "x"}),
	} {
		t.Run("HTTP/2 "+name, func(t *testing.T) {
			f.untouched(t, func() {
				if got := f.frames(t, h2{fields: fields, body: ping}); got.status != 0 && got.status < 400 {
					t.Errorf("status %d, body %s, want it refused", got.status, got.body)
				}
			})
		})
	}
}

func TestGatewayRefusesWhatItWouldNotAccept(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	for _, accept := range []string{
		"", "application/json", "text/event-stream", "text/html", "application/json;q=0, text/event-stream", "application/json, text/event-stream;q=0.000",
		"application/jsonx, text/event-stream", "application/json text/event-stream", "image/*", "x",
	} {
		t.Run("post "+accept, func(t *testing.T) {
			f.untouched(t, func() {
				refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: initialize, header: map[string]string{"Accept": accept}}), 406, -32600)
				refused(t, f.do(t, call{path: f.mcp(), token: f.token, body: ping, header: map[string]string{"Accept": accept, "Mcp-Session-Id": session}}), 406, -32600)
			})
			if got := f.do(t, call{path: f.rpc(), token: f.token, body: ping, header: map[string]string{"Accept": accept}}); got.status != 200 {
				t.Errorf("on /rpc: status %d, want 200", got.status)
			}
		})
	}
	for _, accept := range []string{"", "application/json", "text/html", "text/event-stream;q=0"} {
		t.Run("get "+accept, func(t *testing.T) {
			f.untouched(t, func() {
				refused(t, f.do(t, call{method: "GET", path: f.mcp(), token: f.token, header: map[string]string{"Accept": accept, "Mcp-Session-Id": session}}), 406, -32600)
			})
		})
	}
	for _, accept := range []string{"text/event-stream, application/json", "APPLICATION/JSON;q=0.5,text/event-stream", "*/*", "application/*, text/*"} {
		t.Run("good "+accept, func(t *testing.T) {
			if got := f.do(t, call{path: f.mcp(), token: f.token, body: initialize, header: map[string]string{"Accept": accept}}); got.status != 200 {
				t.Errorf("status %d, body %s, want 200", got.status, got.body)
			}
		})
	}
}

// A media type or an encoding by which the upstream would read other bytes than
// the gateway has read.
func TestGatewayRefusesMediaTypesReadTwoWays(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	for _, line := range []string{
		"", "Content-Type:", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: multipart/form-data; boundary=x",
		"Content-Type: application/json-rpc", "Content-Type: application/jsonx", "Content-Type: application/json; charset=utf-16", "Content-Type: application/json; charset=utf-7",
		"Content-Type: application/json; charset=iso-8859-1", "Content-Type: application/json; charset=", "Content-Type: application/json; charset=utf-8; charset=utf-7",
		"Content-Type: application/json; charset=utf-7; charset*0=utf-8", "Content-Type: application/json; charset*=utf-8''utf-8", "Content-Type: application/json; charset*0*=utf-8''utf-8",
		"Content-Type: application/json; charset=\"utf-7\"; charset*0=ut; charset*1=f-8", "Content-Type: application/json; charset=utf\\-8", "Content-Type: application/json; boundary=x",
		"Content-Type: application/json, text/plain", "Content-Type: application/json text/plain", "Content-Type: */*", "Content-Type: application/json; charset",
		"Content-Type: application/json; charset=utf-8 x", "Content-Type: application /json", "Content-Type: x",
	} {
		t.Run(line, func(t *testing.T) {
			for _, path := range []string{f.rpc(), f.mcp()} {
				request := f.post(path, ping, "Mcp-Session-Id: "+session)
				if line == "" {
					request = strings.Replace(request, "Content-Type: application/json\r\n", "", 1)
				} else {
					request = strings.Replace(request, "Content-Type: application/json", line, 1)
				}
				f.untouched(t, func() { refused(t, f.first(t, request), 415, -32600) })
			}
		})
	}
	for _, encoding := range []string{"gzip", "br", "deflate", "identity", "", "x, gzip", "zstd"} {
		t.Run("encoding "+encoding, func(t *testing.T) {
			f.untouched(t, func() { refused(t, f.first(t, f.post(f.rpc(), ping, "Content-Encoding: "+encoding)), 415, -32600) })
		})
	}
	for _, line := range []string{"application/json", "Application/JSON", "application/json;charset=UTF-8", `application/json; charset="utf-8"`, "application/json;"} {
		t.Run("good "+line, func(t *testing.T) {
			if got := f.do(t, call{path: f.rpc(), token: f.token, body: ping, header: map[string]string{"Content-Type": line}}); got.status != 200 {
				t.Errorf("status %d, body %s, want 200", got.status, got.body)
			}
		})
	}
}

func TestGatewayRefusesBodiesWhereNoneBelongs(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	session := f.session(t, f.server, f.token)
	lines := []string{"Host: " + f.authority(), "Authorization: Bearer " + f.token, "Accept: text/event-stream", "Content-Type: application/json", "Mcp-Session-Id: " + session}
	for _, method := range []string{"GET", "DELETE"} {
		f.untouched(t, func() {
			refused(t, f.first(t, f.head(method, f.mcp(), append(lines, "Content-Length: 40")...)+"\r\n"+ping), 400, -32600)
			refused(t, f.first(t, f.head(method, f.mcp(), append(lines, "Transfer-Encoding: chunked")...)+"\r\n28\r\n"+ping+"\r\n0\r\n\r\n"), 400, -32600)
			refused(t, f.frames(t, h2{fields: f.fields(method, f.mcp(), [2]string{"mcp-session-id", session}), body: ping}), 400, -32600)
		})
	}
	if got := f.first(t, f.head("DELETE", f.mcp(), append(lines, "Content-Length: 0")...)+"\r\n"); got.status != 204 {
		t.Errorf("a DELETE without a body: status %d, body %s, want 204", got.status, got.body)
	}
}
