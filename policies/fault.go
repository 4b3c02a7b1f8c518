package policies

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Fault is one thing that is wrong with a bundle, and where.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitzero"` // from 1; 0: the file as a whole
	Message string `json:"message"`
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// BundleError says why a bundle is not a policy. It has at least one fault.
type BundleError struct{ Faults []Fault }

func (e *BundleError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "; ")
}

func refuse(file string, line int, format string, args ...any) error {
	return &BundleError{Faults: []Fault{{File: file, Line: line, Message: fmt.Sprintf(format, args...)}}}
}

// faultsOf reads OPA's errors.
func faultsOf(file string, err error) []Fault {
	var bundle *BundleError
	if errors.As(err, &bundle) {
		return bundle.Faults
	}
	var all ast.Errors
	if !errors.As(err, &all) {
		return []Fault{{File: file, Message: err.Error()}}
	}
	faults := make([]Fault, 0, len(all))
	for _, one := range all {
		fault := Fault{File: file, Message: one.Message + detailOf(one)}
		if one.Location != nil {
			fault.File, fault.Line = one.Location.File, one.Location.Row
		}
		faults = append(faults, fault)
	}
	return faults
}

// detailMost is how much of OPA's details a fault has, in bytes.
const detailMost = 300

// detailOf is what OPA says more, on one line: what it has and what it wants. A
// piece of the source is left out, for the place says it.
func detailOf(fault *ast.Error) string {
	if _, isSource := fault.Details.(*ast.ParserErrorDetail); isSource || fault.Details == nil {
		return ""
	}
	var parts []string
	size := 0
	for _, line := range fault.Details.Lines() {
		line = strings.Join(strings.Fields(line), " ")
		if strings.Trim(line, "^") == "" || strings.Contains(fault.Message, line) {
			continue // points at the line before, or says nothing new
		}
		if size += len(line); size > detailMost {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, line)
	}
	if len(parts) == 0 {
		return ""
	}
	return printable(" (" + strings.Join(parts, "; ") + ")")
}
