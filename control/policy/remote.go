package policy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

// RemoteConfig says where a signed bundle is.
type RemoteConfig struct {
	URL       string        // https; http only on a loopback address. Without user, query and fragment
	Key       []byte        // PEM of the public key that has to have signed it
	Scope     string        // that it has to be signed for; "": none
	CA        []byte        // PEM of who vouches for the server; nil: the system's roots
	TokenFile string        // its content is sent as bearer token, read each time; "": none
	Every     time.Duration // between two questions, at least a second; default 30 s
	Timeout   time.Duration // of one question; default 20 s
}

const (
	defaultEvery   = 30 * time.Second
	leastEvery     = time.Second
	defaultTimeout = 20 * time.Second
	mostPause      = time.Minute // between questions that fail, unless Every is longer
	mostToken      = 8192        // bytes
)

// Remote is a Source: a signed OPA bundle on an https server. Who runs the
// server can withhold a newer bundle, and nothing else.
type Remote struct {
	cfg      RemoteConfig
	url      *url.URL
	verifier *bundle.Verifier
	client   *http.Client

	pause time.Duration // before the next question
	etag  string        // of the last body; "": none
	offer Offer         // what that body was
	fault error
}

// NewRemote checks the configuration. It asks nobody yet.
func NewRemote(c RemoteConfig) (*Remote, error) {
	if c.Every == 0 {
		c.Every = defaultEvery
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	at, err := CheckBundleURL(c.URL)
	if err != nil {
		return nil, err
	}
	if c.Every < leastEvery {
		return nil, fmt.Errorf("asking for a bundle every %v is too often: at least %v", c.Every, leastEvery)
	}
	r := &Remote{cfg: c, url: at, pause: c.Every}
	if r.verifier, err = bundle.NewVerifier(c.Key, c.Scope); err != nil {
		return nil, fmt.Errorf("the key that signs bundles: %w", err)
	}
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		// What is compressed on the way would be bounded before it is unpacked.
		DisableCompression: true, DisableKeepAlives: true,
	}
	if c.CA != nil {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("there is no certificate in the CA file of the bundle's server")
		}
	}
	r.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r, nil
}

// CheckBundleURL parses where a bundle is. There is no place for a secret in it.
func CheckBundleURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return nil, errors.New("it has more than scheme, host, port and path; what proves who asks belongs into a token file")
	case u.Hostname() == "":
		return nil, errors.New("it names no host")
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return u, nil
	}
	return nil, errors.New("it is neither https nor on this machine")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Origin implements Source.
func (r *Remote) Origin() string { return "bundle " + r.url.String() }

// Wait implements Source: longer, the more questions in a row have failed.
func (r *Remote) Wait(ctx context.Context) {
	timer := time.NewTimer(r.pause - rand.N(r.pause/10+1)) //nolint:gosec // spreads questions, guards nothing
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Read implements Source.
func (r *Remote) Read(ctx context.Context) (Offer, error) {
	body, etag, err := r.ask(ctx)
	if err != nil {
		r.pause = min(2*r.pause, max(r.cfg.Every, mostPause))
		return Offer{}, err
	}
	r.pause = r.cfg.Every
	if body != nil {
		var signed bundle.Verified
		signed, r.fault = r.verifier.Read(bytes.NewReader(body))
		r.etag, r.offer = etag, Offer{Bundle: signed.Bundle, Version: signed.Version}
	}
	return r.offer, r.fault
}

// ask fetches the body, or none when it is that of the last time.
func (r *Remote) ask(ctx context.Context) (body []byte, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	request, err := r.request(ctx)
	if err != nil {
		return nil, "", err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, "", reasonOf(err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotModified && r.etag != "":
		return nil, "", nil
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return nil, "", fmt.Errorf("the server redirects (status %d): redirects are not followed, name the place itself", answer.StatusCode)
	case answer.StatusCode != http.StatusOK:
		return nil, "", fmt.Errorf("the server answered with status %d", answer.StatusCode)
	case strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html"):
		return nil, "", errors.New("the server answered with a web page, not with a bundle")
	}
	body, err = io.ReadAll(io.LimitReader(answer.Body, policies.BundleMost+1))
	switch {
	case ctx.Err() != nil: // a server that is given up may still end its answer well
		return nil, "", reasonOf(ctx.Err())
	case err != nil:
		return nil, "", reasonOf(err)
	case len(body) > policies.BundleMost:
		return nil, "", fmt.Errorf("the bundle is larger than %d bytes", policies.BundleMost)
	}
	return body, answer.Header.Get("ETag"), nil
}

func (r *Remote) request(ctx context.Context) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/gzip, application/octet-stream")
	if r.etag != "" {
		request.Header.Set("If-None-Match", r.etag)
	}
	if r.cfg.TokenFile == "" {
		return request, nil
	}
	token, err := tokenOf(r.cfg.TokenFile)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

// tokenOf reads the file each time: who rotates the token just writes it. The
// errors do not repeat what is in it.
func tokenOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the bundle server's token: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostToken+1))
	if err != nil {
		return "", fmt.Errorf("reading the bundle server's token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > mostToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("%s does not hold one token of visible ASCII characters", path)
	}
	return token, nil
}

// reasonOf says in a few words why nobody answered.
func reasonOf(err error) error {
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return errors.New("the server did not answer in time")
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("asking the server: %w", wrapped.Err)
	}
	return fmt.Errorf("reading the server's answer: %w", err)
}
