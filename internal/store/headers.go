package store

import (
	"context"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	"github.com/arbiter-gateway/arbiter/internal/secret"
)

// sealedHeader is one element of what is sealed in servers.headers.
type sealedHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func headersPlace(id identity.ServerID) place { return place{"servers", "headers", id.String()} }

// dress gives a server the names and the revision of its headers, and returns
// them sealed.
func (s *Store) dress(srv *Server, headers []Header) (string, error) {
	srv.HeaderNames = nil
	if len(headers) > 0 || srv.HeadersRevision > 0 {
		srv.HeadersRevision = srv.Revision
	}
	if len(headers) == 0 {
		return "", nil
	}
	plain := make([]sealedHeader, len(headers))
	for i, h := range headers {
		plain[i] = sealedHeader{h.Name, h.Value.Reveal()}
		srv.HeaderNames = append(srv.HeaderNames, h.Name)
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return "", err
	}
	return s.seal(text, headersPlace(srv.ID)), nil
}

// UpstreamHeaders opens the headers that a server's upstream wants, and says
// at which revision they last changed.
func (s *Store) UpstreamHeaders(ctx context.Context, id identity.ServerID) ([]Header, int64, error) {
	var sealed string
	var revision int64
	err := s.read(ctx).row(`SELECT headers, headers_revision FROM servers WHERE id = $1`, id.String())(&sealed, &revision)
	if err != nil {
		return nil, 0, failed("reading upstream headers", err)
	}
	headers, err := s.undress(sealed, id)
	if err != nil {
		return nil, 0, failed("reading upstream headers", err)
	}
	return headers, revision, nil
}

func (s *Store) undress(sealed string, id identity.ServerID) ([]Header, error) {
	if sealed == "" {
		return nil, nil
	}
	text, err := s.unseal(sealed, headersPlace(id))
	if err != nil {
		return nil, err
	}
	var plain []sealedHeader
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, fault{errSealed} // the cause could quote a value
	}
	headers := make([]Header, len(plain))
	for i, h := range plain {
		headers[i] = Header{h.Name, secret.New(h.Value)}
	}
	return headers, nil
}

// leadsElsewhere reports whether a server's upstreams after a change include
// one that they did not include before. A URL that cannot be read is always
// another one.
func leadsElsewhere(before, after Server) bool {
	known := map[string]bool{"": true, originOf(before.MCP): true, originOf(before.RPC): true}
	delete(known, unreadable)
	return !known[originOf(after.MCP)] || !known[originOf(after.RPC)]
}

const unreadable = "unreadable"

// originOf is the scheme, host and port of an upstream URL, "" for none.
func originOf(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return unreadable
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
