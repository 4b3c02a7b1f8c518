package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

type explainCmd struct {
	RequestID string `arg:"" name:"request-id" help:"From the header arbiter-request-id of an answer."`
}

// Run shows the decision record.
func (c *explainCmd) Run(p *program) error {
	if err := refuseSecret(c.RequestID); err != nil {
		return err
	}
	to, err := p.client()
	if err != nil {
		return err
	}
	raw, err := to.do(http.MethodGet, "/decisions/"+url.PathEscape(c.RequestID), nil)
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

// flatten makes a line of each value in a JSON object, in its order: the
// object {"principal": {"id": 1}} is "principal.id", "1".
func flatten(record []byte) ([][]string, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(record))
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
