package policies

import (
	"bytes"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// nameOf is what a rule defines, from data on.
func nameOf(rule *ast.Rule) string {
	return rule.Module.Package.Path.Extend(rule.Head.Ref().GroundPrefix()).String()
}

func placeOf(at *ast.Location) Place {
	if at == nil {
		return Place{}
	}
	return Place{File: at.File, Line: at.Row, Text: oneLine(at.Text)}
}

// headOf is where a rule begins and what it says: deny contains {"code": "x"}.
func headOf(rule *ast.Rule) Place {
	out := placeOf(rule.Location)
	if head := rule.Head.Location; head != nil {
		out.Text = oneLine(head.Text)
	}
	return out
}

// oneLine shows source, which may hold anything, to a person.
func oneLine(source []byte) string {
	return printable(strings.Join(strings.Fields(string(source)), " "))
}

// failedAt is the expression that a rule failed at, as its author wrote it: the
// compiler takes count(input.x) > 3 apart, and the widest of the pieces that
// holds the failed one is the expression.
func failedAt(t *tried) Place {
	if t.failed == nil {
		return valueOf(t.rule)
	}
	at := t.failed.Location
	if at == nil {
		return placeOf(t.rule.Location)
	}
	for _, expr := range t.rule.Body {
		if expr.Location != nil && holds(expr.Location, at) && len(expr.Location.Text) > len(at.Text) {
			at = expr.Location
		}
	}
	return placeOf(at)
}

// holds reports whether one piece of source lies in another.
func holds(outer, inner *ast.Location) bool {
	from := inner.Offset - outer.Offset
	return outer.File == inner.File && from >= 0 && from+len(inner.Text) <= len(outer.Text) &&
		bytes.Equal(outer.Text[from:from+len(inner.Text)], inner.Text)
}

// valueOf is where a rule's value is written, for one whose value is false.
func valueOf(rule *ast.Rule) Place {
	out := headOf(rule)
	if _, constant := rule.Head.Value.Value.(ast.Boolean); constant {
		return out
	}
	for _, expr := range rule.Body {
		at := expr.Location
		if at != nil && rule.Head.Location != nil && holds(rule.Head.Location, at) && len(at.Text) < len(rule.Head.Location.Text) {
			out = placeOf(at)
		}
	}
	return out
}
