package extauthz

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// origin is a parsed web origin (RFC 6454): scheme and host:port in lower
// case, the scheme's default port left out.
type origin struct {
	text     string // scheme://host[:port]
	hostPort string // host[:port], as a Host header shows it
	loopback bool
}

func newOrigin(u *url.URL) origin {
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	if (scheme == "https" && port == "443") || (scheme == "http" && port == "80") {
		port = ""
	}
	out := origin{hostPort: bracketed(host), loopback: loopbackHost(host)}
	if port != "" {
		out.hostPort = net.JoinHostPort(host, port)
	}
	out.text = scheme + "://" + out.hostPort
	return out
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// parseOrigin reads the Origin header of a browser. It has nothing but scheme,
// host and port; anything else is refused, "null" too.
func parseOrigin(text string) (origin, bool) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Hostname() == "" {
		return origin{}, false
	}
	if u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return origin{}, false
	}
	return newOrigin(u), true
}

// admits reports whether a Host header names this gateway: the base URL's, a
// listed one, or any loopback one when the base URL is loopback.
func (g *gateway) admits(host string) bool {
	if host == "" {
		return false
	}
	if host == g.base.hostPort || g.hosts[host] {
		return true
	}
	name, port, err := net.SplitHostPort(host)
	switch {
	case err != nil:
		name, port = strings.Trim(host, "[]"), ""
	case strings.Trim(port, "0123456789") != "":
		return false // two Host lines, which Envoy joins with a comma, end here too
	}
	if bracketed(name)+":"+port == g.base.hostPort+":443" && strings.HasPrefix(g.base.text, "https:") {
		return true
	}
	return g.base.loopback && (name == "localhost" || name == "127.0.0.1" || name == "::1")
}

// admit is the rest of step 1: what is refused before anybody is asked who
// they are (contract section 1). A preflight ends here with its answer.
func admit(snap *Snapshot, req *request) error {
	if !snap.gateway.admits(req.host) {
		return deny(reasonHost)
	}
	if len(req.header.origin) > 0 {
		if err := admitOrigin(snap, req); err != nil {
			return err
		}
	}
	if req.query {
		return deny(reasonQuery)
	}
	return nil
}

func admitOrigin(snap *Snapshot, req *request) error {
	if len(req.header.origin) > 1 {
		return deny(reasonOrigin)
	}
	req.cors = allowedOrigin(snap, req)
	if req.cors == "" {
		return deny(reasonOrigin)
	}
	if req.method == "OPTIONS" && len(req.header.requestMethod) == 1 {
		return deny(reasonPreflight)
	}
	return nil
}

// allowedOrigin is the one Origin of a request, or "" when it may not call. A
// listed one is compared byte by byte, as browsers send it: it may have a
// scheme of its own, such as an editor's.
func allowedOrigin(snap *Snapshot, req *request) string {
	line := req.header.origin[0]
	if srv := snap.servers.find(req.server); srv != nil && line != "null" && srv.origins[line] {
		return line
	}
	from, ok := parseOrigin(line)
	if ok && (from.text == snap.gateway.base.text || snap.gateway.base.loopback && from.loopback) {
		return from.text
	}
	return ""
}
