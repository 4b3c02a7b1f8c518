package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

type explainCmd struct {
	ID     string `arg:"" name:"id" help:"From the header arbiter-request-id of an answer; decision_id in the log."`
	Record bool   `help:"Show the decision record, line by line, instead."`
}

// Run explains one decision.
func (c *explainCmd) Run(p *program) error {
	if err := refuseSecret(c.ID); err != nil {
		return err
	}
	to, err := p.client()
	if err != nil {
		return err
	}
	path := "/decisions/" + url.PathEscape(c.ID)
	if c.Record {
		return p.printRecord(to, path)
	}
	why, raw, err := ask[api.Explanation](to, http.MethodGet, path+"/explanation", nil)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	return p.printExplanation(&why)
}

func (p *program) printRecord(c *client, path string) error {
	raw, err := c.do(http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if p.json {
		return p.printRaw(raw)
	}
	rows, err := flatten(raw)
	if err != nil {
		return errors.New("the decision record cannot be read")
	}
	return p.printTable(rows)
}

// printExplanation says who asked for what, what came of it and why, and then
// which rules hold and which would have allowed it.
func (p *program) printExplanation(why *api.Explanation) error {
	r, err := record.Parse(why.Decision)
	if err != nil {
		return errors.New("the decision record cannot be read: see --record")
	}
	rows := [][]string{
		{"when", when(r.Time, "") + ", at " + r.Replica},
		{"who", whoAsked(r)},
		{"what", whatAsked(r)},
		{"server", serverAsked(r)},
		{"outcome", outcomeOf(r)},
		{"because", why.Means},
	}
	if r.Result != nil {
		for _, denial := range r.Result.Denials {
			rows = append(rows, []string{"denial", denial.Code + ": " + denial.Text})
		}
	}
	if why.Help != "" {
		rows = append(rows, []string{"help", why.Help})
	}
	if why.Policy != nil {
		rows = append(rows, []string{"policy", policyAsked(why.Policy)})
	}
	if err := p.printTable(rows); err != nil || why.Policy == nil {
		return err
	}
	return p.printLines(whyLines(why.Policy, r.Outcome == record.Allow))
}

func whoAsked(r *record.Record) string {
	who := r.Input.Principal
	if who.Kind == "" {
		return "nobody known: no credential was found good"
	}
	text := string(who.Kind) + ":" + who.Subject
	if who.Name != "" {
		text += " (" + strconv.Quote(who.Name) + ")"
	}
	if who.Narrowed {
		text += ", scopes: " + strings.Join(who.Scopes, " ")
	}
	return text + from(r.Input.Request.Source)
}

func from(source string) string {
	if source == "" {
		return ""
	}
	return ", from " + source
}

// whatAsked names the messages of a request, or the request itself.
func whatAsked(r *record.Record) string {
	var calls []string
	if r.Input.Call != nil {
		calls = append(calls, called(&r.Input.Call.Call))
	}
	for i := range r.Input.Calls {
		calls = append(calls, called(&r.Input.Calls[i].Call))
	}
	request := strings.TrimSpace(r.Input.Request.Method + " " + r.Input.Request.Path)
	if len(calls) == 0 {
		return strings.TrimSpace(request + " " + string(r.Input.Action))
	}
	return strings.Join(calls, ", ") + " (" + request + ")"
}

func called(c *policies.Call) string {
	for _, selector := range []string{c.Tool, c.Prompt, c.Resource, c.Template, c.Task, c.Level} {
		if selector != "" {
			return c.Method + " " + strconv.Quote(selector)
		}
	}
	return c.Method
}

func serverAsked(r *record.Record) string {
	srv := r.Input.Server
	if srv == nil {
		return "none known"
	}
	return strings.TrimSpace(srv.Name + " " + srv.ID)
}

func outcomeOf(r *record.Record) string {
	text := r.Outcome + ": " + r.Reason
	if r.Detail != "" {
		text += " (" + r.Detail + ")"
	}
	if r.Status != 0 {
		text += ", status " + strconv.Itoa(r.Status)
	}
	return text
}

func policyAsked(e *api.ExplainedPolicy) string {
	switch {
	case !e.Known:
		return e.Revision + ", which is not kept any more"
	case e.Current:
		return e.Revision + ", which decides now"
	}
	return e.Revision + ", which was replaced since"
}

// whyLines are what the policy's rules came to.
func whyLines(e *api.ExplainedPolicy, allowed bool) []string {
	var out []string
	if e.Problem != "" {
		out = append(out, "", "not explained: "+e.Problem)
	}
	why := e.Why
	if why == nil {
		return out
	}
	if why.Touched != nil {
		return append(out, "  "+at(*why.Touched))
	}
	if why.Fault != nil {
		out = append(out, "", "what went wrong", "  "+why.Fault.String())
	}
	if len(why.Fired) > 0 {
		out = append(out, "", "rules that hold")
		for _, fired := range why.Fired {
			out = append(out, "  "+at(fired.Place))
		}
	}
	if !allowed {
		out = append(out, wouldAllow(e)...)
	}
	if e.Answer != nil && !e.Same {
		out = append(out, "", "asked again, this policy answers otherwise: "+answerText(*e.Answer))
	}
	if e.ServerNow {
		out = append(out, "", "the server's grants and data were too long for the record: it was asked with those of now")
	}
	return out
}

// wouldAllow lists what was missing.
func wouldAllow(e *api.ExplainedPolicy) []string {
	var out []string
	if len(e.Why.Missing) > 0 || len(e.Scopes) > 0 {
		out = append(out, "", "what would have allowed it")
	}
	out = append(out, missingLines(e.Why.Missing, "  ")...)
	if len(e.Scopes) > 0 {
		out = append(out, "  a credential with one of the scopes "+strings.Join(e.Scopes, ", "))
	}
	return out
}

func missingLines(missing []policies.Missing, indent string) []string {
	var out []string
	for _, rule := range missing {
		out = append(out, indent+at(rule.Place), fmt.Sprintf("%s  does not hold at %s", indent, at(rule.Failed)))
		out = append(out, missingLines(rule.Because, indent+"    ")...)
	}
	return out
}

func at(place policies.Place) string {
	text := place.File + ":" + strconv.Itoa(place.Line)
	if place.Text != "" {
		text += "  " + place.Text
	}
	return text
}

func answerText(a api.Answer) string {
	var codes []string
	for _, denial := range a.Denials {
		codes = append(codes, denial.Code)
	}
	return strings.TrimSpace(strings.Join([]string{a.Outcome, strings.Join(codes, ", "), a.Error}, " "))
}

// flatten makes a line of each value in a JSON object, in its order: the
// object {"principal": {"id": 1}} is "principal.id", "1".
func flatten(text []byte) ([][]string, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	var rows [][]string
	for {
		kind := dec.PeekKind()
		if kind == '{' || kind == '}' || (kind == ']' || kind == '[') {
			if _, err := dec.ReadToken(); err != nil {
				return nil, err
			}
			if dec.StackDepth() == 0 {
				return rows, nil
			}
			continue
		}
		token, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if parent, length := dec.StackIndex(dec.StackDepth()); parent == '{' && length%2 == 1 {
			continue // the name of a member: the pointer has it
		}
		rows = append(rows, []string{label(dec.StackPointer()), token.String()})
	}
}

func label(p jsontext.Pointer) string {
	var parts []string
	for part := range p.Tokens() {
		parts = append(parts, strings.ReplaceAll(part, "_", " "))
	}
	return strings.Join(parts, ".")
}
