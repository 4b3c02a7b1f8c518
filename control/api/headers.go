package api

import (
	"errors"
	"net/textproto"
	"strings"

	"github.com/arbiter-gateway/arbiter/internal/secret"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

const (
	maxHeaders     = 32
	maxHeaderName  = 128     // bytes
	maxHeaderValue = 8 << 10 // bytes
)

// headerField is one header that an upstream wants. Its value only goes in.
type headerField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// headers checks what was given; nil when nothing was.
func (f *serverFields) headers() (*[]store.Header, error) {
	if !f.Headers.given {
		return nil, nil
	}
	var found faults
	if len(f.Headers.value) > maxHeaders {
		found.add("headers", "are more than %d", maxHeaders)
		return nil, found.err()
	}
	out := []store.Header{}
	seen := map[string]bool{}
	for i, h := range f.Headers.value {
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		if err := checkHeaderName(name); err != nil {
			found.add(element("headers", i)+".name", "%v", err)
		} else if seen[name] {
			found.add(element("headers", i)+".name", "given twice")
		}
		if err := checkHeaderValue(h.Value); err != nil {
			found.add(element("headers", i)+".value", "%v", err)
		}
		seen[name] = true
		out = append(out, store.Header{Name: name, Value: secret.New(h.Value)})
	}
	return &out, found.err()
}

// checkHeaderName refuses what is not a header name (RFC 9110, section 5.1) and
// each name by which an operator could, without knowing it, change how a
// message is framed, routed or understood, or speak for the gateway itself.
func checkHeaderName(name string) error {
	const allowed = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || len(name) > maxHeaderName || strings.Trim(name, allowed) != "" {
		return errors.New("is not a header name (RFC 9110)")
	}
	// Some upstreams read "_" as "-" (CGI), so X_Arbiter_Server would be ours.
	folded := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch folded {
	case "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade": // hop-by-hop, RFC 9110 section 7.6.1
		return errReserved
	case "host", "expect", "origin", "forwarded", "via", "last-event-id", "cookie", "set-cookie":
		return errReserved
	}
	for _, prefix := range []string{"proxy-", "content-", "accept", "mcp-", "arbiter-", "x-arbiter-", "x-envoy-", "x-forwarded-", "access-control-", "sec-"} {
		if strings.HasPrefix(folded, prefix) {
			return errReserved
		}
	}
	return nil
}

var errReserved = errors.New("is reserved: the gateway, or the protocol, sets it")

// checkHeaderValue allows visible ASCII, with single spaces or tabs inside (RFC
// 9110, section 5.5). The fault never shows the value.
func checkHeaderValue(value string) error {
	switch {
	case value == "":
		return errors.New("must be given")
	case len(value) > maxHeaderValue:
		return errors.New("is longer than 8 KiB")
	case strings.TrimSpace(value) != value:
		return errors.New("begins or ends with a space")
	}
	for i := range len(value) {
		if c := value[i]; c != '\t' && (c < ' ' || c > '~') {
			return errors.New("has a character that is not visible ASCII")
		}
	}
	return nil
}
