package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/arbiter-gateway/arbiter/control/policy"
	"github.com/arbiter-gateway/arbiter/internal/headers"
)

// policySettings are where policies come from, and what they may see and set.
type policySettings struct {
	Dir             string // "": as the role has it; noPolicyDir: none
	BundleURL       string
	BundleKey       string // file
	BundleScope     string
	BundleCA        string // file
	BundleToken     string // file
	BundleEvery     time.Duration
	RequestHeaders  []string
	UpstreamHeaders []string
}

// noPolicyDir stands for no directory where one would be the default.
const noPolicyDir = "none"

func (s *policySettings) table() []setting {
	text := func(into *string) func(string) error {
		return func(t string) error { *into = t; return nil }
	}
	return []setting{
		{"policy_dir", "directory whose policy decides, live as it is edited; none: policies come over the API", text(&s.Dir)},
		{"policy_bundle_url", "https URL of a signed OPA bundle whose policy decides", func(t string) error { s.BundleURL = t; return checkBundleURL(t) }},
		{"policy_bundle_key", "public key that signs bundles, PEM", text(&s.BundleKey)},
		{"policy_bundle_scope", "scope that bundles are signed for", text(&s.BundleScope)},
		{"policy_bundle_ca", "authorities that vouch for the bundle's server, PEM", text(&s.BundleCA)},
		{"policy_bundle_token_file", "file with the bearer token for the bundle's server", text(&s.BundleToken)},
		{"policy_bundle_interval", "how often the bundle is asked for", duration(&s.BundleEvery, time.Second, 24*time.Hour)},
		{"policy_request_headers", "request headers that policies see", func(t string) (err error) {
			s.RequestHeaders, err = headerNames(t, headers.MaySee)
			return err
		}},
		{"policy_upstream_headers", "headers that policies may set for upstreams; a client's own are removed", func(t string) (err error) {
			s.UpstreamHeaders, err = headerNames(t, headers.MaySet)
			return err
		}},
	}
}

// check judges what one key alone does not show.
func (s *policySettings) check() error {
	switch {
	case s.BundleURL != "" && s.Dir != "" && s.Dir != noPolicyDir:
		return errors.New("configuration: policy_dir and policy_bundle_url are both set: policies come from one of them")
	case s.BundleURL != "" && s.BundleKey == "":
		return errors.New("configuration: policy_bundle_url needs policy_bundle_key: a bundle that nobody signed is not taken")
	case s.BundleURL == "" && s.BundleKey+s.BundleScope+s.BundleCA+s.BundleToken != "":
		return errors.New("configuration: policy_bundle_key, _scope, _ca and _token_file are of a bundle: set policy_bundle_url too")
	}
	return nil
}

func checkBundleURL(text string) error {
	if _, err := policy.CheckBundleURL(text); err != nil {
		return err // does not repeat the text: it may hold a secret
	}
	return nil
}

// namesMost is how many headers policies see, or set.
const namesMost = 32

// headerNames reads names in lower case, each once.
func headerNames(text string, allowed func(string) bool) ([]string, error) {
	names := list(text)
	if len(names) > namesMost {
		return nil, fmt.Errorf("%d names are more than %d", len(names), namesMost)
	}
	for i, name := range names {
		switch {
		case !headers.IsName(name):
			return nil, fmt.Errorf("%q is not a header's name in lower case, of a to z, 0 to 9 and -", name)
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%q is there twice", name)
		case !allowed(name):
			return nil, fmt.Errorf("%q is a secret, or the gateway's or the protocol's own", name)
		}
	}
	return names, nil
}

// policySource is where policies come from by themselves; nil: nowhere. With
// ours that is a directory of the data directory unless something else is set.
func (r *roles) policySource(ours bool) (policy.Source, error) {
	s := &r.settings.Policy
	switch {
	case s.BundleURL != "":
		return r.bundleSource()
	case s.Dir == noPolicyDir, s.Dir == "" && !ours:
		return nil, nil //nolint:nilnil // policies come over the API
	case s.Dir == "":
		s.Dir = r.p.file(policyDirectory)
		if err := r.prepareStandard(); err != nil {
			return nil, err
		}
	}
	return policy.NewDirectory(s.Dir)
}

func (r *roles) bundleSource() (policy.Source, error) {
	s := r.settings.Policy
	cfg := policy.RemoteConfig{URL: s.BundleURL, Scope: s.BundleScope, TokenFile: s.BundleToken, Every: s.BundleEvery}
	var err error
	if cfg.Key, err = os.ReadFile(s.BundleKey); err != nil {
		return nil, fmt.Errorf("configuration: policy_bundle_key: %w", err)
	}
	if s.BundleCA != "" {
		if cfg.CA, err = os.ReadFile(s.BundleCA); err != nil {
			return nil, fmt.Errorf("configuration: policy_bundle_ca: %w", err)
		}
	}
	source, err := policy.NewRemote(cfg)
	if err != nil {
		return nil, fmt.Errorf("configuration: policy_bundle_url: %w", err)
	}
	return source, nil
}

// policyFrom says where policies come from, for the people who start arbiter.
func (r *roles) policyFrom() string {
	switch s := r.settings.Policy; {
	case s.BundleURL != "":
		return s.BundleURL + ", signed"
	case s.Dir != "" && s.Dir != noPolicyDir:
		return filepath.Clean(s.Dir) + ", live as you edit it"
	}
	return "`arbiter policy apply` brings another"
}
