package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/policies"
)

type policyEvalCmd struct {
	policySource `embed:""`

	Input   string `required:"" placeholder:"FILE" help:"What a policy sees, as JSON: see docs/policies.md; -: from standard input."`
	Explain bool   `help:"Also show the rules that hold, and what would have allowed it."`
}

// inputMost is far more than a request can be.
const inputMost = 16 << 20

// evaluated is a decision with the names that a policy's rules have.
type evaluated struct {
	Allow   bool               `json:"allow"`
	Deny    []api.PolicyDenial `json:"deny,omitempty"`
	Hide    bool               `json:"hide,omitzero"`
	Scopes  []string           `json:"scopes_needed,omitempty"`
	Headers map[string]string  `json:"headers,omitempty"`
	Limits  []evaluatedLimit   `json:"limits,omitempty"`

	Explanation *policies.Explanation `json:"explanation,omitzero"`
}

type evaluatedLimit struct {
	By    []string `json:"by"`
	Rate  float64  `json:"rate"`
	Burst int      `json:"burst"`
}

// Run prints the decision. That it denies is no error of the command; that the
// policy gives none is.
func (c *policyEvalCmd) Run(p *program) error {
	b, _, err := c.read()
	if err != nil {
		return err
	}
	policy, err := policies.Compile(p.ctx, b)
	if err != nil {
		return c.faults(p, b, err)
	}
	in, err := c.input(p)
	if err != nil {
		return err
	}
	if c.Explain {
		return c.explain(p, policy, in)
	}
	d, err := policy.Decide(p.ctx, in)
	if err != nil {
		return err
	}
	return p.printJSON(evaluatedOf(d))
}

func (c *policyEvalCmd) explain(p *program, policy *policies.Policy, in *policies.Input) error {
	why, err := policy.Explain(p.ctx, in, true)
	if err != nil {
		return err
	}
	if why.Fault != nil && !p.json {
		return errors.New("the policy gives no clear answer: " + why.Fault.String())
	}
	out := evaluatedOf(why.Decision)
	if p.json {
		out.Explanation = &why
		err = p.printJSON(out)
	} else if err = p.printJSON(out); err == nil {
		err = p.printLines(whyLines(&api.ExplainedPolicy{Same: true, Scopes: why.Decision.Scopes, Why: &why}, why.Decision.Allow))
	}
	if err == nil && why.Fault != nil {
		err = errors.New("the policy gives no clear answer: " + why.Fault.String())
	}
	return err
}

func (c *policyEvalCmd) input(p *program) (*policies.Input, error) {
	from := p.stdin
	if c.Input != "-" {
		file, err := os.Open(c.Input)
		if err != nil {
			return nil, fmt.Errorf("--input: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, inputMost+1))
	if err != nil {
		return nil, fmt.Errorf("--input: %w", err)
	}
	if len(text) > inputMost {
		return nil, fmt.Errorf("--input: there are more than %d bytes", inputMost)
	}
	in, err := policies.ParseInput(text)
	if err != nil {
		return nil, fmt.Errorf("--input: %w", err)
	}
	return &in, nil
}

func evaluatedOf(d policies.Decision) *evaluated {
	out := &evaluated{Allow: d.Allow, Hide: d.Hide, Scopes: d.Scopes}
	for _, denial := range d.Denials {
		out.Deny = append(out.Deny, api.PolicyDenial{Code: denial.Code, Message: denial.Text})
	}
	for _, h := range d.Headers {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[h.Name] = h.Value
	}
	for _, limit := range d.Limits {
		out.Limits = append(out.Limits, evaluatedLimit{By: limit.By, Rate: limit.Rate, Burst: limit.Burst})
	}
	return out
}
