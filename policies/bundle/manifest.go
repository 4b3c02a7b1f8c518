package bundle

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	opa "github.com/open-policy-agent/opa/v1/bundle"
)

// manifest is what .manifest says, as far as it matters here. Without the file
// it is the zero manifest.
type manifest struct {
	revision string
	version  int64 // metadata.version; 0: none
}

// manifestJSON is .manifest; members that are not here are OPA's.
type manifestJSON struct {
	Revision         string           `json:"revision"`
	Roots            *[]string        `json:"roots"`
	Wasm             []jsontext.Value `json:"wasm"`
	RegoVersion      *int             `json:"rego_version"`
	FileRegoVersions map[string]int   `json:"file_rego_versions"`
	Metadata         struct {
		Version jsontext.Value `json:"version"`
	} `json:"metadata"`
}

func (a *archive) manifest() (manifest, error) {
	content, found := a.files[manifestFile]
	if !found {
		return manifest{}, nil
	}
	var read manifestJSON
	if err := json.Unmarshal(content, &read); err != nil {
		return manifest{}, fmt.Errorf("%s: %w", manifestFile, err)
	}
	if err := read.check(); err != nil {
		return manifest{}, fmt.Errorf("%s: %w", manifestFile, err)
	}
	out := manifest{revision: read.Revision}
	if spelled := string(read.Metadata.Version); spelled != "" {
		version, err := strconv.ParseInt(spelled, 10, 64)
		if err != nil || version < 1 {
			return manifest{}, fmt.Errorf("%s: metadata.version is not a whole number from 1 on, like 42", manifestFile)
		}
		out.version = version
	}
	return out, nil
}

// check refuses a bundle that means something else to OPA than to Arbiter.
func (m *manifestJSON) check() error {
	old := func(version int) bool { return version != 1 }
	switch {
	case m.Roots != nil && !opa.RootPathsContain(rootsOf(*m.Roots), "policy"):
		return fmt.Errorf("its roots (%s) leave out policy", strings.Join(*m.Roots, ", "))
	case len(m.Wasm) > 0:
		return errors.New(refusedFiles["policy.wasm"])
	case m.RegoVersion != nil && old(*m.RegoVersion):
		return errors.New("rego_version is not 1: write the policy in Rego v1")
	}
	for name, version := range m.FileRegoVersions {
		if old(version) {
			return fmt.Errorf("file_rego_versions of %+q is not 1: write the policy in Rego v1", name)
		}
	}
	return nil
}

// rootsOf are paths as OPA reads them, without a slash at either end.
func rootsOf(roots []string) []string {
	out := slices.Clone(roots)
	for i := range out {
		out[i] = strings.Trim(out[i], "/")
	}
	return out
}
