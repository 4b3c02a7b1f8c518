package policies

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// yamlMost is how large a data.yaml may be: what people write. More data goes
// into data.json, whose reader takes it in one pass.
const yamlMost = 256 << 10

// yamlToJSON reads the part of YAML that says one thing: no anchors, aliases,
// merges and tags, no second document, no key twice.
func yamlToJSON(content []byte) (jsontext.Value, error) {
	if len(content) > yamlMost {
		return nil, fmt.Errorf("more than %d KiB of YAML: use data.json", yamlMost>>10)
	}
	if err := plainYAML(string(content)); err != nil {
		return nil, err
	}
	var value map[string]any
	if err := yaml.UnmarshalWithOptions(content, &value, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	out, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func plainYAML(content string) error {
	open := 0
	for _, t := range lexer.Tokenize(content) {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DocumentHeaderType, token.DocumentEndType, token.DirectiveType:
			return fmt.Errorf("line %d: anchors, aliases, tags and documents of YAML are not read", t.Position.Line)
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		}
		if nests := t.Type == token.SequenceEntryType || t.Type == token.MappingValueType; open > depthMost || nests && t.Position.Column > 10*depthMost {
			return fmt.Errorf("line %d: nested more than %d deep", t.Position.Line, depthMost)
		}
	}
	return nil
}
