package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrURL says that a text is not the URL of an upstream. Errors of ParseURL
// wrap it and say why, without repeating the text: it may hold a password.
var ErrURL = errors.New("not an upstream URL")

const (
	maxURL   = 2048
	maxName  = 253 // RFC 1035, section 2.3.4, without the root label
	maxLabel = 63
)

// URL is a checked upstream URL in its one spelling: scheme and host in lower
// case, an IPv6 address as RFC 5952 writes it, a path that is never empty. Two
// URLs that are equal are the same upstream.
type URL struct {
	tls  bool
	host string
	port uint16
	path string
}

// ParseURL accepts
//
//	http|https :// name | IPv4 | [IPv6]  [:port]  [/path]
//
// of at most 2048 visible ASCII characters (RFC 3986). A name has letters,
// digits, "-" and "_", no dot at its end; an internationalised one is given as
// punycode. A last label that is a number is an IPv4 address, in dotted decimal
// without leading zeros and in no other spelling. Port is 1 to 65535. Refused:
// user information, query, fragment, zones, percent-encoding in the host, "."
// and ".." segments (encoded, too), encoded control characters.
func ParseURL(text string) (URL, error) {
	if len(text) > maxURL {
		return URL{}, fault("more than 2048 bytes")
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return URL{}, fault("a space, a backslash, or a character that is not visible ASCII")
		}
	}
	scheme, rest, _ := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if scheme != "http" && scheme != "https" {
		return URL{}, fault("does not begin with http:// or https://")
	}
	if strings.ContainsAny(rest, "?#") {
		return URL{}, fault("a query or a fragment")
	}
	authority, path := rest, "/"
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if err := checkPath(path); err != nil {
		return URL{}, err
	}
	u := URL{tls: scheme == "https", path: path}
	if err := u.setAuthority(authority); err != nil {
		return URL{}, err
	}
	return u, nil
}

func fault(why string) error { return fmt.Errorf("%w: %s", ErrURL, why) }

func (u *URL) setAuthority(authority string) error {
	host, port, err := splitAuthority(authority)
	if err != nil {
		return err
	}
	if u.host, err = checkHost(host); err != nil {
		return err
	}
	u.port, err = checkPort(port, u.defaultPort())
	return err
}

// splitAuthority cuts the port off. The host keeps its brackets; the port keeps
// its colon and is empty when there is none.
func splitAuthority(authority string) (host, port string, err error) {
	switch {
	case strings.Contains(authority, "@"):
		return "", "", fault("user information")
	case strings.Contains(authority, "%"):
		return "", "", fault("a zone or percent-encoding in the host")
	case strings.HasPrefix(authority, "["):
		end := strings.IndexByte(authority, ']') + 1
		if end == 0 {
			return "", "", fault("a bracket that is not closed")
		}
		return authority[:end], authority[end:], nil
	}
	if colon := strings.IndexByte(authority, ':'); colon >= 0 {
		return authority[:colon], authority[colon:], nil
	}
	return authority, "", nil
}

func checkHost(host string) (string, error) {
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !addr.Is6() {
			return "", fault("no IPv6 address between the brackets")
		}
		return addr.String(), nil
	}
	host = strings.ToLower(host)
	if host == "" || len(host) > maxName {
		return "", fault("a host that is empty or longer than 253 bytes")
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !hostLabel(label) {
			return "", fault("a host with a label that is not letters, digits, - and _")
		}
	}
	if number(labels[len(labels)-1]) {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is4() {
			return "", fault("an IPv4 address that is not four decimal numbers")
		}
	}
	return host, nil
}

func hostLabel(label string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	return label != "" && len(label) <= maxLabel && strings.Trim(label, letters) == "" &&
		label[0] != '-' && label[len(label)-1] != '-'
}

// number reports whether some resolver might read label as part of an IPv4
// address: decimal or octal digits, or 0x and hexadecimal ones.
func number(label string) bool {
	if hexed, found := strings.CutPrefix(label, "0x"); found {
		return strings.Trim(hexed, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func checkPort(port string, byDefault uint16) (uint16, error) {
	if port == "" {
		return byDefault, nil
	}
	n, err := strconv.ParseUint(port[1:], 10, 16)
	if err != nil || port[0] != ':' || port[1] < '1' || port[1] > '9' {
		return 0, fault("a port that is not 1 to 65535")
	}
	return uint16(n), nil
}

// encodedDots is made once: a start reads the URLs of all servers.
var encodedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// checkPath allows the characters of RFC 3986, section 3.3.
func checkPath(path string) error {
	const pchar = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/"
	for i := 0; i < len(path); i++ {
		if strings.IndexByte(pchar, path[i]) >= 0 {
			continue
		}
		if path[i] != '%' || i+2 >= len(path) {
			return fault("a path with a character that must be percent-encoded")
		}
		code, err := strconv.ParseUint(path[i+1:i+3], 16, 8)
		if err != nil || code < 0x20 || code == 0x7f {
			return fault("a path with a wrong percent-encoding or an encoded control character")
		}
		i += 2
	}
	for segment := range strings.SplitSeq(encodedDots.Replace(path), "/") {
		if segment == "." || segment == ".." {
			return fault("a path with a dot segment")
		}
	}
	return nil
}

// IsZero reports whether u was never parsed.
func (u URL) IsZero() bool { return u == URL{} }

// TLS reports whether the upstream is spoken to over TLS.
func (u URL) TLS() bool { return u.tls }

// Host returns the name in lower case, or the address without brackets.
func (u URL) Host() string { return u.host }

// Port returns the port, also when the URL did not name it.
func (u URL) Port() uint16 { return u.port }

// Path returns the base path, percent-encoded as given; "/" when there is none.
func (u URL) Path() string { return u.path }

// Origin returns scheme://host:port, the port always written (RFC 6454, section
// 4, but never shortened). Where it changes, another party is spoken to: headers
// stored for the old one are not for it.
func (u URL) Origin() string {
	return u.scheme() + "://" + net.JoinHostPort(u.host, strconv.Itoa(int(u.port)))
}

// HostHeader returns what belongs into Host and :authority (RFC 9110, section
// 7.2): brackets around IPv6, the port only when it is not the scheme's own.
func (u URL) HostHeader() string {
	hostPort := net.JoinHostPort(u.host, strconv.Itoa(int(u.port)))
	if u.port == u.defaultPort() {
		return hostPort[:strings.LastIndexByte(hostPort, ':')]
	}
	return hostPort
}

// String returns the URL. ParseURL reads it back as the same URL.
func (u URL) String() string {
	if u.IsZero() {
		return ""
	}
	return u.scheme() + "://" + u.HostHeader() + u.path
}

func (u URL) scheme() string {
	if u.tls {
		return "https"
	}
	return "http"
}

func (u URL) defaultPort() uint16 {
	if u.tls {
		return 443
	}
	return 80
}
