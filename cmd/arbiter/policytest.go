package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
)

type policyTestCmd struct {
	policySource `embed:""`

	Verbose  bool `short:"v" help:"Also name the tests that pass, and what they print."`
	Coverage bool `help:"Also say which lines no test came to."`
}

// Run runs the tests. One that fails ends it with exit code 1.
func (c *policyTestCmd) Run(p *program) error {
	b, _, err := c.read()
	if err != nil {
		return err
	}
	run := policies.Test
	if c.Coverage {
		run = policies.Cover
	}
	report, err := run(p.ctx, b)
	if err != nil {
		return c.faults(p, b, err)
	}
	if p.json {
		err = p.printJSON(report)
	} else {
		err = p.printLines(c.lines(b, &report))
	}
	if err == nil && len(report.Failed) > 0 {
		err = errors.New(count(len(report.Failed), "test") + " failed; this policy would be refused")
	}
	return err
}

func (c *policyTestCmd) lines(b policies.Bundle, r *policies.Report) []string {
	var out []string
	printed := func(one policies.TestResult) {
		for line := range strings.Lines(one.Output) {
			out = append(out, "    "+strings.TrimRight(line, "\n"))
		}
	}
	if c.Verbose {
		for _, one := range r.Passed {
			out = append(out, "ok    "+c.where(b, one.File, one.Line)+" "+one.Name)
			printed(one)
		}
	}
	for _, one := range r.Failed {
		out = append(out, "FAIL  "+c.where(b, one.File, one.Line)+" "+one.Name+": "+one.Message)
		printed(one)
	}
	if covered := r.Coverage; covered != nil {
		out = append(out, fmt.Sprintf("%.0f %% of the lines were evaluated", covered.Percent))
		for _, file := range slices.Sorted(maps.Keys(covered.Uncovered)) {
			out = append(out, "    not in "+c.where(b, file, 0)+": "+ranges(covered.Uncovered[file]))
		}
	}
	if len(r.Passed)+len(r.Failed) == 0 {
		return append(out, "there are no tests: rules like test_allow_reading in a file like policy_test.rego, package policy_test")
	}
	return append(out, fmt.Sprintf("%d passed, %d failed", len(r.Passed), len(r.Failed)))
}

// ranges writes sorted lines as people do: 3, 5-8.
func ranges(lines []int) string {
	var out []string
	for i := 0; i < len(lines); {
		end := i
		for end+1 < len(lines) && lines[end+1] == lines[end]+1 {
			end++
		}
		text := strconv.Itoa(lines[i])
		if end > i {
			text += "-" + strconv.Itoa(lines[end])
		}
		out, i = append(out, text), end+1
	}
	return strings.Join(out, ", ")
}
