package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/control/api"
)

// policyFlags are the fields of a server that policies see, and what is
// recorded of it.
type policyFlags struct {
	Grant           []string       `sep:"none" placeholder:"KIND:ID=TOOL,..." help:"Who may use which tools: access_token:ID=echo,read_*, or *=echo for everybody; nobody: no one. Repeatable; together they replace all grants."`
	NoGrants        bool           `name:"no-grants" help:"Take all grants back: tools are not narrowed any more."`
	PolicyData      *string        `placeholder:"@FILE" help:"JSON object for policies, from FILE (@-: standard input); empty: take it back."`
	RecordArguments *bool          `negatable:"" help:"Keep the values of arguments beside decision records, to explain them."`
	Mask            []string       `sep:"none" placeholder:"POINTER" help:"Argument that is not kept, as /password or /users/*/key. Repeatable; with --record-arguments."`
	Keep            *time.Duration `placeholder:"TIME" help:"How long the values are kept, 1m to 720h; with --record-arguments."`
	ToolChanges     *string        `placeholder:"alarm|deny" help:"When a tool's definition changes: report it, or deny the tool too until it is approved."`
}

const nobody = "nobody"

// fields adds what was given to the body of a create or an update.
func (f *policyFlags) fields(p *program, out map[string]any) error {
	if f.ToolChanges != nil {
		out["tool_changes"] = orNull(*f.ToolChanges)
	}
	return errors.Join(f.grants(out), f.data(p, out), f.recording(out))
}

func (f *policyFlags) grants(out map[string]any) error {
	switch {
	case f.NoGrants && len(f.Grant) > 0:
		return errors.New("--no-grants: goes without --grant")
	case f.NoGrants:
		out["grants"] = nil
	case slices.Equal(f.Grant, []string{nobody}):
		out["grants"] = []api.Grant{}
	case len(f.Grant) > 0:
		grants := []api.Grant{}
		for _, text := range f.Grant {
			grant, err := parseGrant(text)
			if err != nil {
				return fmt.Errorf("--grant: %w", err)
			}
			grants = append(grants, grant)
		}
		out["grants"] = grants
	}
	return nil
}

// parseGrant reads KIND:ID=TOOL,TOOL or *=TOOL,TOOL.
func parseGrant(text string) (api.Grant, error) {
	who, tools, found := strings.Cut(text, "=")
	if !found || who == "" || tools == "" {
		return api.Grant{}, errors.New("give KIND:ID=TOOL,TOOL or *=TOOL,TOOL; --grant nobody lets no one use a tool, --no-grants takes all grants back")
	}
	if err := refuseSecret(who[strings.LastIndexByte(who, ':')+1:]); err != nil {
		return api.Grant{}, err
	}
	out := api.Grant{Tools: strings.Split(tools, ",")}
	if who == "*" {
		return out, nil
	}
	kind, id, found := strings.Cut(who, ":")
	if !found || kind == "" || id == "" {
		return api.Grant{}, fmt.Errorf("%q is not KIND:ID, like access_token:0190b6a1-7f3e-4c1d-9a2b-3c4d5e6f7081 (see `arbiter token list`)", who)
	}
	out.Principal = api.GrantPrincipal{Kind: kind, ID: id}
	return out, nil
}

func (f *policyFlags) data(p *program, out map[string]any) error {
	if f.PolicyData == nil {
		return nil
	}
	out["policy_data"] = nil
	if *f.PolicyData == "" {
		return nil
	}
	const most = 64 << 10
	source, found := strings.CutPrefix(*f.PolicyData, "@")
	var text []byte
	var err error
	switch {
	case !found || source == "":
		err = errors.New("give @FILE, or @- for standard input")
	case source == "-":
		text, err = readAtMost(p.stdin, most)
	default:
		text, err = readSmallFile(source, most)
	}
	if err == nil && jsontext.Value(text).Kind() != '{' || err == nil && !jsontext.Value(text).IsValid() {
		err = errors.New("is not a JSON object")
	}
	if err != nil {
		return fmt.Errorf("--policy-data: %w", err)
	}
	out["policy_data"] = jsontext.Value(text)
	return nil
}

// recording turns the recording of arguments on only where it was said so: a
// mask alone would do it too.
func (f *policyFlags) recording(out map[string]any) error {
	on := f.RecordArguments != nil && *f.RecordArguments
	switch {
	case !on && (len(f.Mask) > 0 || f.Keep != nil):
		return errors.New("--mask and --keep: go with --record-arguments")
	case !on && f.RecordArguments != nil:
		out["record_arguments"] = nil
	case on:
		set := map[string]any{}
		if len(f.Mask) > 0 {
			set["mask"] = withoutEmpty(f.Mask)
		}
		if f.Keep != nil {
			if *f.Keep%time.Second != 0 {
				return errors.New("--keep: must be whole seconds")
			}
			set["keep_seconds"] = int64(*f.Keep / time.Second)
		}
		out["record_arguments"] = set
	}
	return nil
}

// policyRows show the same fields.
func policyRows(s api.Server) [][]string {
	rows := grantRows(s.Grants)
	if len(s.PolicyData) > 0 {
		rows = append(rows, []string{"policy data", cut(compact(s.PolicyData))})
	}
	recorded := "not recorded"
	if r := s.RecordArguments; r != nil {
		recorded = "recorded for " + (time.Duration(r.KeepSeconds) * time.Second).String()
		if len(r.Mask) > 0 {
			recorded += ", masked: " + strings.Join(r.Mask, ", ")
		}
	}
	return append(rows, []string{"argument values", recorded}, []string{"tool changes", s.ToolChanges})
}

func grantRows(value jsontext.Value) [][]string {
	if len(value) == 0 {
		return [][]string{{"grants", "none: tools are not narrowed"}}
	}
	var grants []api.Grant
	if err := json.Unmarshal(value, &grants); err != nil {
		return [][]string{{"grants", cut(compact(value))}}
	}
	if len(grants) == 0 {
		return [][]string{{"grants", "nobody may use a tool"}}
	}
	var rows [][]string
	for i, grant := range grants {
		rows = append(rows, []string{"grant " + strconv.Itoa(i+1), granted(grant.Principal) + ": " + strings.Join(grant.Tools, ", ")})
	}
	return rows
}

func granted(p api.GrantPrincipal) string {
	var parts []string
	for _, part := range [][2]string{{"kind", p.Kind}, {"id", p.ID}, {"client", p.Client}, {"user", p.User}, {"issuer", p.Issuer}} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	if len(parts) == 0 {
		return "everybody"
	}
	return strings.Join(parts, ", ")
}

func compact(value jsontext.Value) string {
	value = slices.Clone(value)
	if err := value.Compact(); err != nil {
		return "cannot be read"
	}
	return string(value)
}

// cut keeps a line readable; --json shows the whole.
func cut(text string) string {
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "… (--json shows all)"
	}
	return text
}
