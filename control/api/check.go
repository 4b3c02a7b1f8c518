package api

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// What a server's fields may be.
const (
	maxName       = 100 // characters
	maxOrigins    = 32
	maxOrigin     = 300 // bytes
	maxLabels     = 32
	maxLabelKey   = 63      // bytes
	maxLabelValue = 256     // characters
	minMaxBody    = 1 << 10 // bytes
	maxMaxBody    = 4 << 20 // bytes, the hard limit of contract section 4
	minCallLimit  = 1       // seconds
	maxCallLimit  = int64(revocation.CallMost / time.Second)
	maxCA         = 48 << 10 // bytes; a body has 64 KiB, and line ends are escaped in it
)

// checkServer judges the record as it would be stored, and brings URLs and CA
// into the one spelling that is stored.
func checkServer(srv *store.Server, found *faults) {
	if err := checkName(srv.Name); err != nil {
		found.add("name", "%v", err)
	}
	checkUpstream("mcp", &srv.MCP, found)
	checkUpstream("rpc", &srv.RPC, found)
	if srv.MCP == "" && srv.RPC == "" {
		found.add("mcp", "at least one of mcp and rpc must be given")
	}
	if srv.CA != "" {
		plain, err := certificates(srv.CA)
		if err != nil {
			found.add("ca", "%v", err)
		}
		srv.CA = plain
	}
	checkOrigins(srv.AllowedOrigins, found)
	checkLabels(srv.Labels, found)
	if n := srv.Limits.MaxBody; n < minMaxBody || n > maxMaxBody {
		found.add("limits.max_body", "must be %d to %d bytes (1 KiB to 4 MiB)", minMaxBody, maxMaxBody)
	}
}

// checkName allows what a person can read, type and tell from an id.
func checkName(name string) error {
	if name == "" {
		return errors.New("must be given")
	}
	if err := checkText(name, maxName); err != nil {
		return err
	}
	if _, err := uuid.Parse(name); err == nil {
		return errors.New("must not look like a UUID, or it could be taken for another server's id")
	}
	return nil
}

// checkText allows at most limit printable characters; the only space is " ",
// and not at either end.
func checkText(s string, limit int) error {
	switch {
	case utf8.RuneCountInString(s) > limit:
		return fmt.Errorf("is longer than %d characters", limit)
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }):
		return errors.New("has a control character or another that cannot be seen")
	case strings.TrimSpace(s) != s:
		return errors.New("begins or ends with a space")
	}
	return nil
}

func checkUpstream(field string, text *string, found *faults) {
	if *text == "" {
		return
	}
	u, err := upstream.ParseURL(*text)
	if err != nil {
		found.add(field, "%v", err)
		return
	}
	*text = u.String()
}

// certificates returns the PEM certificates of text and nothing else of it.
func certificates(text string) (string, error) {
	if len(text) > maxCA {
		return "", fmt.Errorf("is longer than %d KiB", maxCA>>10)
	}
	var out bytes.Buffer
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return "", errors.New("holds something that is not a certificate; only PEM certificates may be given")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", errors.New("holds a certificate that cannot be read")
		}
		if err := pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}); err != nil {
			return "", err
		}
	}
	if out.Len() == 0 || bytes.Contains(rest, []byte("-----BEGIN")) {
		return "", errors.New("is not a list of PEM certificates")
	}
	return out.String(), nil
}

func checkOrigins(origins []string, found *faults) {
	if len(origins) > maxOrigins {
		found.add("allowed_origins", "are more than %d", maxOrigins)
		return
	}
	for i, origin := range origins {
		if err := checkOrigin(origin); err != nil {
			found.add(element("allowed_origins", i), "%v", err)
		} else if slices.Contains(origins[:i], origin) {
			found.add(element("allowed_origins", i), "given twice")
		}
	}
}

// checkOrigin allows scheme://host[:port] exactly as a browser sends it (RFC
// 6454, section 6.2), because Check compares bytes. "null" is everybody's.
func checkOrigin(origin string) error {
	if origin == "null" {
		return errors.New("null is no one's origin and is always refused")
	}
	errForm := errors.New("must be scheme://host or scheme://host:port in lower case, without a path or a *")
	scheme, authority, found := strings.Cut(origin, "://")
	if !found || len(origin) > maxOrigin || !originScheme(scheme) || authority == "" {
		return errForm
	}
	host, port := authority, ""
	if colon := strings.LastIndexByte(authority, ':'); colon > strings.LastIndexByte(authority, ']') {
		host, port = authority[:colon], authority[colon+1:]
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port != strconv.FormatUint(n, 10) {
			return errForm
		}
	}
	if scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return errors.New("names its scheme's own port, which browsers leave out")
	}
	if !originHost(host) {
		return errForm
	}
	return nil
}

func originScheme(s string) bool {
	return s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

func originHost(host string) bool {
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		return closed && err == nil && addr.Is6() && addr.Zone() == "" && addr.String() == inner
	}
	return host != "" && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-._") == ""
}

func checkLabels(labels map[string]string, found *faults) {
	if len(labels) > maxLabels {
		found.add("labels", "are more than %d", maxLabels)
		return
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	for key, value := range labels {
		field := "labels." + shorten(key)
		if key == "" || len(key) > maxLabelKey || strings.Trim(key, allowed) != "" {
			found.add(field, "its key must be 1 to %d letters, digits, - _ . and /", maxLabelKey)
		}
		if err := checkText(value, maxLabelValue); err != nil {
			found.add(field, "%v", err)
		}
	}
}

// shorten shows a caller's own key back to it: printable, at most 64 bytes.
func shorten(s string) string {
	const most = 64
	out := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
	if len(out) > most {
		cut := most
		for !utf8.RuneStart(out[cut]) {
			cut--
		}
		out = out[:cut] + "…"
	}
	return out
}
