//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// Requests of which two readers would find two ends: none of it may reach the
// upstream, above all not what hides in the body as a second request.
func TestGatewayRefusesRequestsWithTwoEnds(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	hidden := "POST " + f.rpc() + " HTTP/1.1\r\nHost: " + f.authority() + "\r\nContent-Length: 5\r\n\r\nhello"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(ping), ping)
	auth := []string{"Host: " + f.authority(), "Authorization: Bearer " + f.token, "Content-Type: application/json"}
	request := func(body string, lines ...string) string {
		return strings.Replace(f.head("POST", f.rpc(), append(auth, lines...)...), "Connection: close\r\n", "", 1) + "\r\n" + body
	}
	length := fmt.Sprintf("Content-Length: %d", len(ping))
	for name, attack := range map[string]string{
		"length and chunks":           request(chunked+hidden, length, "Transfer-Encoding: chunked"),
		"chunks and length":           request(chunked+hidden, "Transfer-Encoding: chunked", length),
		"length of the chunks":        request(chunked+hidden, fmt.Sprintf("Content-Length: %d", len(chunked)), "Transfer-Encoding: chunked"),
		"two lengths":                 request(ping+hidden, length, fmt.Sprintf("Content-Length: %d", len(ping+hidden))),
		"two lengths in one":          request(ping+hidden, length+", 40"),
		"length with a sign":          request(ping+hidden, "Content-Length: +40"),
		"negative length":             request(ping+hidden, "Content-Length: -1"),
		"length in hexadecimal":       request(ping+hidden, "Content-Length: 0x28"),
		"length with a space":         request(ping+hidden, "Content-Length: 4 0"),
		"empty length":                request(ping+hidden, "Content-Length: "),
		"huge length":                 request(ping+hidden, "Content-Length: 18446744073709551656"),
		"length before a colon space": request(ping+hidden, "Content-Length : 40"),
		"length with a vertical tab":  request(ping+hidden, "Content-Length:\v40"),
		"identity":                    request(chunked+hidden, "Transfer-Encoding: identity"),
		"two codings":                 request(chunked+hidden, "Transfer-Encoding: gzip, chunked"),
		"chunked twice":               request(chunked+hidden, "Transfer-Encoding: chunked, chunked"),
		"chunked twice in two":        request(chunked+hidden, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
		"chunked, then identity":      request(chunked+hidden, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
		"not quite chunked":           request(chunked+hidden, "Transfer-Encoding: xchunked"),
		"chunked in quotes":           request(chunked+hidden, `Transfer-Encoding: "chunked"`),
		"chunked with a parameter":    request(chunked+hidden, "Transfer-Encoding: chunked;q=1"),
		"chunked behind a tab":        request(chunked+hidden, length, "Transfer-Encoding:\tchunked"),
		"chunked behind a line":       request(chunked+hidden, length, "X: y\nTransfer-Encoding: chunked"),
		"chunked folded":              request(chunked+hidden, length, "Transfer-Encoding:\r\n chunked"),
		"space before its colon":      request(chunked+hidden, length, "Transfer-Encoding : chunked"),
		"chunk size over 64 bits":     request("10000000000000028\r\n"+ping+"\r\n0\r\n\r\n"+hidden, "Transfer-Encoding: chunked"),
		"chunk size with a sign":      request("+28\r\n"+ping+"\r\n0\r\n\r\n"+hidden, "Transfer-Encoding: chunked"),
		"chunk size with 0x":          request("0x28\r\n"+ping+"\r\n0\r\n\r\n"+hidden, "Transfer-Encoding: chunked"),
		"chunk without its end":       request("28\r\n"+ping+"0\r\n\r\n"+hidden, "Transfer-Encoding: chunked"),
		"negative chunk":              request("-28\r\n"+ping+"\r\n0\r\n\r\n"+hidden, "Transfer-Encoding: chunked"),
		"extension with a line feed":  request("28;a\nb\r\n"+ping+"\r\n0\r\n\r\n"+hidden, "Transfer-Encoding: chunked"),
	} {
		t.Run(name, func(t *testing.T) {
			f.untouched(t, func() {
				for i, got := range f.wire(t, attack) {
					if got.status < 400 {
						t.Errorf("answer %d: status %d, body %s", i, got.status, got.body)
					}
				}
			})
		})
	}
	t.Run("twin", func(t *testing.T) {
		f.echo.Reset()
		second := request(ping, length)
		if got := f.wire(t, request(chunked, "Transfer-Encoding: chunked")+second); len(got) != 2 || got[0].status != 200 || got[1].status != 200 {
			t.Errorf("two good requests on one connection: %v", got)
		}
		if n := len(f.echo.Requests()); n != 2 {
			t.Errorf("the upstream saw %d requests, want 2", n)
		}
	})
}

// A request that follows another on its connection is decided by itself.
func TestGatewayDecidesEachRequestOfAConnection(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	good := strings.Replace(f.post(f.rpc(), ping), "Connection: close\r\n", "", 1)
	bad := strings.Replace(good, "Authorization: Bearer "+f.token+"\r\n", "", 1)
	f.echo.Reset()
	got := f.wire(t, good+bad+good+bad)
	var statuses []int
	for _, r := range got {
		statuses = append(statuses, r.status)
	}
	if fmt.Sprint(statuses) != "[200 401 200 401]" || len(f.echo.Requests()) != 2 {
		t.Errorf("statuses %v, the upstream saw %d requests, want [200 401 200 401] and 2", statuses, len(f.echo.Requests()))
	}
}

// Shapes of a head that are read leniently elsewhere.
func TestGatewayRefusesOddHeads(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	good := f.post(f.rpc(), ping)
	for name, attack := range map[string]string{
		"fold at the start":           strings.Replace(good, "HTTP/1.1\r\n", "HTTP/1.1\r\n X-A: b\r\n", 1),
		"space before a colon":        strings.Replace(good, "Authorization:", "Authorization :", 1),
		"tab before a colon":          strings.Replace(good, "Authorization:", "Authorization\t:", 1),
		"no colon":                    strings.Replace(good, "Accept: ", "X-A\r\nAccept: ", 1),
		"no name":                     strings.Replace(good, "Accept: ", ": x\r\nAccept: ", 1),
		"NUL in a value":              strings.Replace(good, "Accept: ", "X-A: b\x00c\r\nAccept: ", 1),
		"NUL in a name":               strings.Replace(good, "Accept: ", "X\x00A: b\r\nAccept: ", 1),
		"control character in a name": strings.Replace(good, "Accept: ", "X\x01A: b\r\nAccept: ", 1),
		"parentheses in a name":       strings.Replace(good, "Accept: ", "X(A): b\r\nAccept: ", 1),
		"high byte in a name":         strings.Replace(good, "Accept: ", "X\xe9A: b\r\nAccept: ", 1),
		"HTTP/1.0":                    strings.Replace(good, "HTTP/1.1", "HTTP/1.0", 1),
		"HTTP/0.9":                    "POST " + f.rpc() + "\r\n\r\n",
		"HTTP/1.2":                    strings.Replace(good, "HTTP/1.1", "HTTP/1.2", 1),
		"HTTP/2.0 by name":            strings.Replace(good, "HTTP/1.1", "HTTP/2.0", 1),
		"HTTP/11":                     strings.Replace(good, "HTTP/1.1", "HTTP/11", 1),
		"lower case http":             strings.Replace(good, "HTTP/1.1", "http/1.1", 1),
		"space in the target":         strings.Replace(good, f.rpc(), f.rpc()+" x", 1),
		"header over 60 KiB":          strings.Replace(good, "Accept: ", "X-A: "+strings.Repeat("a", 61<<10)+"\r\nAccept: ", 1),
		"headers over 60 KiB":         strings.Replace(good, "Accept: ", strings.Repeat("X-A: "+strings.Repeat("a", 1<<10)+"\r\n", 61)+"Accept: ", 1),
		"over 100 headers":            strings.Replace(good, "Accept: ", strings.Repeat("X-A: a\r\n", 101)+"Accept: ", 1),
		"path over 60 KiB":            strings.Replace(good, f.rpc(), f.rpc()+strings.Repeat("/", 61<<10), 1),
		"not HTTP":                    "\x16\x03\x01\x00\xa5\x01\x00\x00",
		"only line breaks":            strings.Repeat("\r\n", 100) + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			f.untouched(t, func() {
				for _, got := range f.wire(t, attack) {
					if got.status < 400 || got.status >= 500 {
						t.Errorf("status %d, body %s, want it refused", got.status, got.body)
					}
				}
			})
		})
	}
	for name, odd := range map[string]string{
		"bare line feeds":  strings.Replace(good, "\r\n", "\n", 6),
		"a line before it": "\r\n" + good,
		"folded header":    strings.Replace(good, "Accept: ", "X-A: b\r\n x-arbiter-server: c\r\nAccept: ", 1),
		"folded length":    strings.Replace(good, "Content-Length: ", "Content-Length:\r\n ", 1),
		"folded token":     strings.Replace(good, "Bearer ", "Bearer\r\n ", 1),
		"lone return":      strings.Replace(good, "Accept: ", "X-A: b\rX-Arbiter-Server: c\r\nAccept: ", 1),
		"tabs in the line": strings.Replace(good, f.rpc()+" ", f.rpc()+"\t", 1),
	} {
		t.Run(name, func(t *testing.T) { // lenient, but with one reading
			f.echo.Reset()
			got := f.wire(t, odd)
			for _, r := range f.echo.Requests() {
				server := r.Values("X-Arbiter-Server")
				if string(r.Body) != ping || r.Target != "/base/rpc" || strings.Contains(fmt.Sprint(r.Fields), f.token) || len(server) != 1 || server[0] != f.server {
					t.Errorf("answers %v, the upstream saw %q %q", got, r.Fields, r.Body)
				}
				for _, field := range r.Fields {
					if strings.ContainsAny(field.Name+field.Value, "\r\n\x00") {
						t.Errorf("the upstream saw %q", field)
					}
				}
			}
		})
	}
	t.Run("as large as a head may be", func(t *testing.T) {
		large := strings.Replace(good, "Accept: ", "X-A: "+strings.Repeat("a", 50<<10)+"\r\nAccept: ", 1)
		if got := f.first(t, large); got.status != 200 {
			t.Errorf("status %d, body %s, want 200", got.status, got.body)
		}
	})
}
