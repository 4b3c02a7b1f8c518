package upstream_test

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

type parts struct {
	origin, hostHeader, path string
	tls                      bool
	host                     string
	port                     uint16
}

func TestParseURLAccepts(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	name253 := strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
	tests := []struct {
		name string
		text string
		want parts
	}{
		{"a name", "http://mcp.example.com/mcp", parts{"http://mcp.example.com:80", "mcp.example.com", "/mcp", false, "mcp.example.com", 80}},
		{"TLS", "https://mcp.example.com/mcp", parts{"https://mcp.example.com:443", "mcp.example.com", "/mcp", true, "mcp.example.com", 443}},
		{"no path", "https://example.com", parts{"https://example.com:443", "example.com", "/", true, "example.com", 443}},
		{"the root", "https://example.com/", parts{"https://example.com:443", "example.com", "/", true, "example.com", 443}},
		{"a port", "http://localhost:3001/mcp", parts{"http://localhost:3001", "localhost:3001", "/mcp", false, "localhost", 3001}},
		{"the scheme's own port", "https://example.com:443/a", parts{"https://example.com:443", "example.com", "/a", true, "example.com", 443}},
		{"the other scheme's port", "http://example.com:443/a", parts{"http://example.com:443", "example.com:443", "/a", false, "example.com", 443}},
		{"the last port", "http://example.com:65535/a", parts{"http://example.com:65535", "example.com:65535", "/a", false, "example.com", 65535}},
		{"upper case", "HTTPS://Example.COM/MCP", parts{"https://example.com:443", "example.com", "/MCP", true, "example.com", 443}},
		{"a name of one label", "http://upstream_1:80/", parts{"http://upstream_1:80", "upstream_1", "/", false, "upstream_1", 80}},
		{"punycode", "https://xn--bcher-kva.example/", parts{"https://xn--bcher-kva.example:443", "xn--bcher-kva.example", "/", true, "xn--bcher-kva.example", 443}},
		{"a number that is not last", "http://10.0.0.1.example/", parts{"http://10.0.0.1.example:80", "10.0.0.1.example", "/", false, "10.0.0.1.example", 80}},
		{"the longest name", "http://" + name253, parts{"http://" + name253 + ":80", name253, "/", false, name253, 80}},
		{"IPv4", "http://192.0.2.1:8080/x", parts{"http://192.0.2.1:8080", "192.0.2.1:8080", "/x", false, "192.0.2.1", 8080}},
		{"IPv6", "http://[2001:db8::1]/x", parts{"http://[2001:db8::1]:80", "[2001:db8::1]", "/x", false, "2001:db8::1", 80}},
		{"IPv6 written long", "https://[2001:0DB8:0:0:0:0:0:1]:8443/x", parts{"https://[2001:db8::1]:8443", "[2001:db8::1]:8443", "/x", true, "2001:db8::1", 8443}},
		{"a long path", "http://h/a/b.c;v=1/d@e:f/%2Fg%20", parts{"http://h:80", "h", "/a/b.c;v=1/d@e:f/%2Fg%20", false, "h", 80}},
		{"dots that are no dot segment", "http://h/...//.a/b..", parts{"http://h:80", "h", "/...//.a/b..", false, "h", 80}},
		{"a trailing slash", "http://h/a/", parts{"http://h:80", "h", "/a/", false, "h", 80}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := upstream.ParseURL(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			got := parts{u.Origin(), u.HostHeader(), u.Path(), u.TLS(), u.Host(), u.Port()}
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if again, err := upstream.ParseURL(u.String()); err != nil || again != u {
				t.Errorf("%q reads back as %v, %v", u, again, err)
			}
		})
	}
}

func TestParseURLRejects(t *testing.T) {
	tests := []struct{ name, text string }{
		{"nothing", ""},
		{"no scheme", "example.com/mcp"},
		{"no slashes", "http:example.com"},
		{"one slash", "http:/example.com"},
		{"another scheme", "ftp://example.com/"},
		{"a unix socket", "unix:///run/x.sock"},
		{"javascript", "javascript://example.com/%0aalert(1)"},
		{"no host", "http:///mcp"},
		{"a port without host", "http://:80/"},
		{"a user", "http://user@example.com/"},
		{"a user and password", "http://user:secret@example.com/"},
		{"an empty user", "http://@example.com/"},
		{"a query", "http://example.com/?a=1"},
		{"an empty query", "http://example.com/?"},
		{"a query without path", "http://example.com?a=1"},
		{"a fragment", "http://example.com/#a"},
		{"an empty fragment", "http://example.com/a#"},
		{"another host behind a fragment", "http://example.com#@evil.example/"},
		{"another host behind a backslash", `http://example.com\@evil.example/`},
		{"a backslash in the path", `http://example.com/a\b`},
		{"a space", "http://example.com/a b"},
		{"a space in front", " http://example.com/"},
		{"a tab in the host", "http://exam\tple.com/"},
		{"a line break", "http://example.com/\r\nx-a: 1"},
		{"a NUL", "http://example.com/\x00"},
		{"DEL", "http://example.com/\x7f"},
		{"beyond ASCII in the path", "http://example.com/é"},
		{"a name that is not punycode", "http://bücher.example/"},
		{"a full-width dot", "http://example。com/"},
		{"percent-encoding in the host", "http://ex%61mple.com/"},
		{"a port that is empty", "http://example.com:/"},
		{"port 0", "http://example.com:0/"},
		{"a port too high", "http://example.com:65536/"},
		{"a port with a sign", "http://example.com:+80/"},
		{"a port with a leading zero", "http://example.com:080/"},
		{"a port by name", "http://example.com:http/"},
		{"two ports", "http://example.com:80:80/"},
		{"an empty label", "http://example..com/"},
		{"a dot in front", "http://.example.com/"},
		{"a dot at the end", "http://example.com./"},
		{"a hyphen in front", "http://-example.com/"},
		{"a hyphen at the end", "http://example-.com/"},
		{"a comma", "http://a,b/"},
		{"a long label", "http://" + strings.Repeat("a", 64) + ".com/"},
		{"a long name", "http://" + strings.Repeat("a.", 127) + "/"},
		{"hexadecimal IPv4", "http://0x7f.1/"},
		{"hexadecimal IPv4 in one", "http://0x7f000001/"},
		{"hexadecimal IPv4 at the end", "http://127.0.0.0x1/"},
		{"an empty hexadecimal number", "http://127.0.0.0x/"},
		{"decimal IPv4", "http://2130706433/"},
		{"short IPv4", "http://127.1/"},
		{"octal IPv4", "http://010.0.0.1/"},
		{"octal IPv4 at the end", "http://10.0.0.01/"},
		{"IPv4 over 255", "http://10.0.0.256/"},
		{"IPv4 of five", "http://10.0.0.0.1/"},
		{"a dot behind IPv4", "http://127.0.0.1./"},
		{"IPv6 without brackets", "http://::1/"},
		{"IPv6 with a zone", "http://[fe80::1%eth0]/"},
		{"IPv6 with an encoded zone", "http://[fe80::1%25eth0]/"},
		{"IPv4 in brackets", "http://[127.0.0.1]/"},
		{"a name in brackets", "http://[localhost]/"},
		{"an open bracket", "http://[::1/"},
		{"text behind the bracket", "http://[::1]x/"},
		{"text behind the bracket, then a port", "http://[::1]x:80/"},
		{"a future address", "http://[v1.a]/"},
		{"two brackets", "http://[[::1]]/"},
		{"a dot segment", "http://example.com/a/./b"},
		{"a double dot segment", "http://example.com/a/../b"},
		{"a dot segment at the end", "http://example.com/.."},
		{"an encoded dot segment", "http://example.com/%2e%2E/b"},
		{"a half encoded dot segment", "http://example.com/.%2e/b"},
		{"a character to be encoded", "http://example.com/<a>"},
		{"a wrong encoding", "http://example.com/%zz"},
		{"an encoding with a sign", "http://example.com/%+1"},
		{"half an encoding", "http://example.com/%4"},
		{"a percent sign at the end", "http://example.com/%"},
		{"an encoded NUL", "http://example.com/%00"},
		{"an encoded line break", "http://example.com/%0d%0a"},
		{"over 2048 bytes", "http://example.com/" + strings.Repeat("a", 2030)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := upstream.ParseURL(tt.text)
			if !errors.Is(err, upstream.ErrURL) || !u.IsZero() || u.String() != "" {
				t.Errorf("ParseURL = %q, %v", u, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats the URL: %v", err)
			}
		})
	}
}

func TestParseURLAcceptsTheLongest(t *testing.T) {
	text := "http://example.com/" + strings.Repeat("a", 2048-len("http://example.com/"))
	if _, err := upstream.ParseURL(text); err != nil {
		t.Error(err)
	}
}

func TestOriginChangesWithEachOfItsParts(t *testing.T) {
	const base = "http://example.com:8080/a"
	tests := []struct {
		name string
		text string
		same bool
	}{
		{"the same", base, true},
		{"another path", "http://example.com:8080/b/c", true},
		{"upper case", "HTTP://EXAMPLE.com:8080/a", true},
		{"another scheme", "https://example.com:8080/a", false},
		{"another host", "http://example.org:8080/a", false},
		{"another port", "http://example.com:8081/a", false},
		{"the default port", "http://example.com/a", false},
	}
	was, err := upstream.ParseURL(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			is, err := upstream.ParseURL(tt.text)
			if err != nil || (is.Origin() == was.Origin()) != tt.same {
				t.Errorf("%s and %s, %v", is.Origin(), was.Origin(), err)
			}
		})
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{
		"http://mcp.example.com/mcp", "https://[2001:db8::1]:8443/x", "http://127.0.0.1:80", "http://user:pw@h/", "http://0x7f.1/",
		"http://h/%2e%2e/a", `http://a\@b/`, "http://a#@b/", "HTTP://A:65535/?x", "http://[::ffff:10.0.0.1]/a%2Fb",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := upstream.ParseURL(text)
		if err != nil {
			if !u.IsZero() {
				t.Fatalf("%q: an error beside %q", text, u)
			}
			return
		}
		again, err := upstream.ParseURL(u.String())
		if err != nil || again != u {
			t.Fatalf("%q became %q became %q, %v", text, u, again, err)
		}
		reference, err := url.Parse(text)
		if err != nil {
			t.Fatalf("%q: net/url refuses it: %v", text, err)
		}
		compare(t, u, reference)
	})
}

// compare holds u against what net/url made of the same text.
func compare(t *testing.T, u upstream.URL, reference *url.URL) {
	t.Helper()
	host := strings.ToLower(reference.Hostname())
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.String()
	}
	port := map[bool]string{true: "443", false: "80"}[u.TLS()]
	if reference.Port() != "" {
		port = reference.Port()
	}
	path := reference.EscapedPath()
	if path == "" {
		path = "/"
	}
	got := parts{path: u.Path(), tls: u.TLS(), host: u.Host(), hostHeader: strconv.Itoa(int(u.Port()))}
	want := parts{path: path, tls: reference.Scheme == "https", host: host, hostHeader: port}
	if got != want {
		t.Errorf("got %+v, net/url %+v", got, want)
	}
	if reference.User != nil || reference.RawQuery != "" || reference.Fragment != "" || reference.ForceQuery {
		t.Errorf("accepted more than host and path: %q", reference)
	}
	if _, _, err := net.SplitHostPort(strings.TrimPrefix(u.Origin(), reference.Scheme+"://")); err != nil {
		t.Errorf("%q: %v", u.Origin(), err)
	}
}
