package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

func headers(value ast.Value) ([]Header, error) {
	if value == nil {
		return nil, nil
	}
	object, ok := value.(ast.Object)
	if !ok {
		return nil, wrong("headers", value, "an object of strings")
	}
	if object.Len() > headersMost {
		return nil, fmt.Errorf("headers has %d members, at most %d are taken", object.Len(), headersMost)
	}
	var out []Header
	err := object.Iter(func(name, value *ast.Term) error {
		n, isText := name.Value.(ast.String)
		v, both := value.Value.(ast.String)
		if !isText || !both || !isHeaderName(string(n)) || !isHeaderValue(string(v)) {
			return errors.New("a member of headers is not a header: a name in lower case and a value of at most 1024 bytes of printable ASCII")
		}
		out = append(out, Header{Name: string(n), Value: string(v)})
		return nil
	})
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

func isHeaderName(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func isHeaderValue(s string) bool {
	return s != "" && len(s) <= headerMost && strings.TrimSpace(s) == s &&
		strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func limits(value ast.Value) ([]Limit, error) {
	items, err := collection("limits", value, limitsMost)
	if err != nil {
		return nil, err
	}
	var out []Limit
	for _, item := range items {
		one, ok := item.Value.(ast.Object)
		if !ok {
			return nil, wrong("an item of limits", item.Value, `an object like {"by": ["principal"], "rate": 0.5, "burst": 5}`)
		}
		limit, err := limitOf(one)
		if err != nil {
			return nil, err
		}
		out = append(out, limit)
	}
	return out, nil
}

func limitOf(o ast.Object) (Limit, error) {
	var out Limit
	by, err := collection("by", member(o, "by"), 3)
	if err != nil {
		return out, err
	}
	for _, item := range by {
		name, _ := item.Value.(ast.String)
		if !slices.Contains([]string{"principal", "server", "tool"}, string(name)) {
			return out, errors.New("a limit's by holds something else than principal, server and tool")
		}
		out.By = append(out.By, string(name))
	}
	slices.Sort(out.By)
	out.By = slices.Compact(out.By)
	rate, isRate := member(o, "rate").(ast.Number)
	burst, isBurst := member(o, "burst").(ast.Number)
	if !isRate || !isBurst || o.Len() != 3 || len(out.By) == 0 {
		return out, errors.New(`a limit is not like {"by": ["principal"], "rate": 0.5, "burst": 5}`)
	}
	var fits bool
	if out.Rate, fits = rate.Float64(); !fits || out.Rate <= 0 || out.Rate > 1e6 {
		return out, errors.New("a limit's rate is not a number above 0, per second, up to 1000000")
	}
	if out.Burst, fits = burst.Int(); !fits || out.Burst < 1 || out.Burst > 1e6 {
		return out, errors.New("a limit's burst is not a whole number from 1 to 1000000")
	}
	return out, nil
}
