package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/policies"
)

type policyShowCmd struct {
	Files string `placeholder:"DIR" help:"Write the policy's files to DIR too, which must be empty or not there."`
}

// Run shows the policy that decides.
func (c *policyShowCmd) Run(p *program) error {
	to, err := p.client()
	if err != nil {
		return err
	}
	query := ""
	if c.Files != "" || p.json {
		query = "?files=true"
	}
	shown, raw, err := ask[api.Policy](to, http.MethodGet, "/policy"+query, nil)
	if err != nil {
		return err
	}
	if c.Files != "" {
		if err := writePolicy(c.Files, shown.Files); err != nil {
			return fmt.Errorf("--files: %w", err)
		}
		p.note("wrote %s to %s", count(len(shown.Files), "file"), c.Files)
	}
	if p.json {
		return p.printRaw(raw)
	}
	return p.printPolicy(&shown)
}

func (p *program) printPolicy(shown *api.Policy) error {
	source := "the API: arbiter policy apply DIR"
	if shown.Source != "" {
		source = shown.Source
	}
	rows := [][]string{
		{"revision", shown.Revision},
		{"origin", shown.Origin},
		{"accepted", when(shown.AcceptedAt, "")},
		{"changed by", source},
	}
	for _, file := range shown.Files {
		rows = append(rows, []string{"file", file.Path + " (" + strconv.Itoa(file.Size) + " bytes)"})
	}
	for _, replica := range shown.Replicas {
		rows = append(rows, []string{"replica", replica.Name + " " + runs(replica)})
	}
	if shown.Refused != nil {
		rows = append(rows, []string{"refused", "what " + shown.Refused.Origin + " offers since " + when(shown.Refused.At, "") + ":"})
		for _, fault := range shown.Refused.Faults {
			rows = append(rows, []string{"fault", fault.String()})
		}
	}
	return p.printTable(rows)
}

func runs(r api.PolicyReplica) string {
	switch {
	case r.Error != "":
		return "refused its settings, and refuses everything once its lease is over: " + r.Error
	case !r.Connected:
		return "is not connected"
	case !r.Runs:
		return "does not run it yet"
	}
	return "runs it"
}

// writePolicy writes files below a directory and nowhere else, whatever their
// paths are.
func writePolicy(dir string, files []api.PolicyFile) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a policy is no secret
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, file := range files {
		if file.Text == nil {
			return fmt.Errorf("%s is not UTF-8", file.Path)
		}
		name := filepath.FromSlash(file.Path)
		err := root.MkdirAll(filepath.FromSlash(path.Dir(file.Path)), 0o755)
		if err == nil {
			err = root.WriteFile(name, []byte(*file.Text), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// candidate reads a policy and makes the body that takes its files.
func (s *policySource) candidate() (policies.Bundle, map[string]any, error) {
	read, _, err := s.read()
	if err != nil {
		return read, nil, err
	}
	files := map[string]string{}
	for name, text := range read.Files {
		if !utf8.Valid(text) {
			return read, nil, fmt.Errorf("%s is not UTF-8", s.where(read, name, 0))
		}
		files[name] = string(text)
	}
	return read, map[string]any{"files": files}, nil
}

// refused gives the faults that control found as those of the bundle.
func refused(err error) error {
	problem, ok := errors.AsType[*api.Problem](err)
	if !ok || len(problem.Faults) == 0 {
		return err
	}
	return &policies.BundleError{Faults: problem.Faults}
}

type policyApplyCmd struct {
	policySource `embed:""`
}

// Run makes the policy decide.
func (c *policyApplyCmd) Run(p *program) error {
	b, body, err := c.candidate()
	if err != nil {
		return err
	}
	to, err := p.client()
	if err != nil {
		return err
	}
	done, raw, err := ask[api.ChangedPolicy](to, http.MethodPut, "/policy", body)
	if err != nil {
		return c.faults(p, b, refused(err))
	}
	p.noteApplied(done.Applied)
	if p.json {
		return p.printRaw(raw)
	}
	return p.printLine("policy " + done.Revision + " decides: " + revocationText(done.Revocation))
}

type policyTryCmd struct {
	Dir      string `arg:"" optional:"" help:"Directory of the candidate, or an OPA bundle (default: the policy that decides)."`
	Decision string `placeholder:"ID" help:"One recorded request."`
	Last     *int   `placeholder:"N" help:"The newest N recorded requests, up to 10000 (default 1000)."`
}

// Run asks a policy what was asked before.
func (c *policyTryCmd) Run(p *program) error {
	if err := refuseSecret(c.Decision); err != nil {
		return err
	}
	source := policySource{Path: c.Dir}
	var b policies.Bundle
	body := map[string]any{}
	if c.Dir != "" {
		var err error
		if b, body, err = source.candidate(); err != nil {
			return err
		}
	}
	if c.Decision != "" {
		body["decision"] = c.Decision
	}
	if c.Last != nil {
		body["last"] = *c.Last
	}
	to, err := p.client()
	if err != nil {
		return err
	}
	tried, raw, err := ask[api.TriedPolicy](to, http.MethodPost, "/policy/try", body)
	if err != nil {
		return source.faults(p, b, refused(err))
	}
	if p.json {
		return p.printRaw(raw)
	}
	return p.printTried(&tried)
}

func (p *program) printTried(t *api.TriedPolicy) error {
	if len(t.Differences) > 0 {
		rows := [][]string{{"DECISION", "TIME", "PRINCIPAL", "SERVER", "CALL", "RECORDED", "CANDIDATE"}}
		for _, d := range t.Differences {
			rows = append(rows, []string{
				d.DecisionID, when(d.Time, ""), d.Principal, d.Server,
				strings.TrimSpace(d.Method + " " + d.Tool), answerText(d.Recorded), answerText(d.Candidate),
			})
		}
		if err := p.printTable(rows); err != nil {
			return err
		}
	}
	if more := t.Different - len(t.Differences); more > 0 {
		p.note("note: %d more differences are not listed", more)
	}
	if !t.Complete {
		p.note("note: the time was over before all records were looked at")
	}
	if t.ServerNow > 0 {
		p.note("note: %d were put with the server's grants and data as they are now; those of then were too long for the record", t.ServerNow)
	}
	return p.printLine(fmt.Sprintf("policy %s, %s: %d answered the same, %d otherwise; %d depend on what was not recorded, %d never came to a policy, %d cannot be decided",
		t.Revision, count(t.Records, "record"), t.Same, t.Different, t.NotRecorded, t.NotAsked, t.Undecidable))
}
