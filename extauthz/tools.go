package extauthz

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// definitions has control remember what servers list as their tools: name,
// title, description, schemas and annotations, which is what a model is told.
// A tool that is listed differently later raises an alarm there; where the
// server says so (deny_changed_tools) it is also denied and not shown until
// somebody approves it.
type definitions struct {
	control pb.ControlClient
	queue   chan toolList
}

// toolList is the tools of one list answer, by name.
type toolList struct {
	srv    *server
	hashes map[string][32]byte
}

const (
	listsQueued = 256
	askWithin   = 2 * time.Second // an answer waits less: filterTime
	// listsKnown is how many different lists of a server a replica knows to
	// be unchanged: its pages, and what each caller is shown of them.
	listsKnown   = 64
	toolsMost    = 4096 // of one list answer
	toolNameMost = 1024 // bytes
)

var (
	errTooManyTools = fmt.Errorf("a list has more than %d tools", toolsMost)
	errToolName     = fmt.Errorf("a tool's name has more than %d bytes", toolNameMost)
)

func newDefinitions(control pb.ControlClient) *definitions {
	return &definitions{control: control, queue: make(chan toolList, listsQueued)}
}

// run reports what nobody waits for, until ctx ends.
func (d *definitions) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-d.queue:
			_, _ = d.ask(ctx, l) // it is listed again, and then asked again
		}
	}
}

// holds reports a tool that may not be used until somebody approves it.
func (s *server) holds(tool string) bool { return s.denyChanged && s.changed[tool] }

// held is see for the items of a list of any kind, by name.
func (d *definitions) held(ctx context.Context, srv *server, kind lists.Kind, items []lists.Item) (map[string]bool, error) {
	if kind != lists.Tools {
		return nil, nil
	}
	values := make([]jsontext.Value, len(items))
	for i, item := range items {
		values[i] = item.Value
	}
	return d.see(ctx, srv, values)
}

// see is told the tools of one list answer, and says which of them have changed
// and may not be used. An error says that nobody could tell.
func (d *definitions) see(ctx context.Context, srv *server, tools []jsontext.Value) (map[string]bool, error) {
	hashes, err := hashesOf(tools)
	if err != nil && srv.denyChanged {
		return nil, err
	}
	if len(hashes) == 0 {
		return nil, nil
	}
	l := toolList{srv, hashes}
	if srv.listed.has(l.digest()) {
		return nil, nil
	}
	if srv.denyChanged {
		return d.ask(ctx, l)
	}
	select {
	case d.queue <- l:
	default: // it is listed again
	}
	return nil, nil
}

// ask compares a list with what control remembers. A list that holds nothing up
// is not asked about again until the server's settings come anew: whatever
// changes what is approved, or what has changed, also changes those.
func (d *definitions) ask(ctx context.Context, l toolList) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	in := &pb.ToolsRequest{ServerId: l.srv.id.String()}
	for _, name := range slices.Sorted(maps.Keys(l.hashes)) {
		hash := l.hashes[name]
		in.Tools = append(in.Tools, &pb.ToolDefinition{Name: name, Hash: hash[:]})
	}
	out, err := d.control.Tools(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("asking control about tools: %w", err)
	}
	if len(out.GetChanged()) == 0 || !l.srv.denyChanged {
		l.srv.listed.add(l.digest())
		return nil, nil
	}
	changed := map[string]bool{}
	for _, name := range out.GetChanged() {
		changed[name] = true
	}
	return changed, nil
}

// digest names exactly these tools with these definitions.
func (l toolList) digest() [32]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(l.hashes)) {
		of := sha256.Sum256([]byte(name))
		hash := l.hashes[name]
		h.Write(of[:])
		h.Write(hash[:])
	}
	return [32]byte(h.Sum(nil))
}

// hashesOf reads the tools of a list. One without a name is nobody's: it is not
// shown anyway. Two of one name count as one that is both.
func hashesOf(tools []jsontext.Value) (map[string][32]byte, error) {
	if len(tools) > toolsMost {
		return nil, errTooManyTools
	}
	out := make(map[string][32]byte, len(tools))
	for _, tool := range tools {
		name, hash, err := definitionOf(tool)
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		if before, twice := out[name]; twice {
			hash = sha256.Sum256(slices.Concat(before[:], hash[:]))
		}
		out[name] = hash
	}
	return out, nil
}

// definition is what of a tool is remembered (MCP 2025-11-25, server/tools,
// "Tool"). Icons and _meta may change.
type definition struct {
	Name         jsontext.Value `json:"name"`
	Title        jsontext.Value `json:"title,omitzero"`
	Description  jsontext.Value `json:"description,omitzero"`
	InputSchema  jsontext.Value `json:"inputSchema,omitzero"`
	OutputSchema jsontext.Value `json:"outputSchema,omitzero"`
	Annotations  jsontext.Value `json:"annotations,omitzero"`
}

var errDefinition = errors.New("a tool is not an object with one definition")

// definitionOf hashes the definition in a form that does not depend on how it
// is spelled: members in order, no blanks, one way to escape. Numbers stay as
// they are written, so that no two of them become one.
func definitionOf(tool jsontext.Value) (name string, hash [32]byte, err error) {
	if tool.Kind() != '{' {
		return "", hash, nil
	}
	var d definition
	if err := json.Unmarshal(tool, &d); err != nil {
		return "", hash, errDefinition
	}
	if d.Name.Kind() != '"' {
		return "", hash, nil
	}
	if err := json.Unmarshal(d.Name, &name); err != nil {
		return "", hash, errDefinition
	}
	text, err := json.Marshal(d)
	if err != nil {
		return "", hash, errDefinition
	}
	canonical := jsontext.Value(text)
	if err := canonical.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return "", hash, errDefinition
	}
	if len(name) > toolNameMost {
		return "", hash, errToolName
	}
	return name, sha256.Sum256(canonical), nil
}

// unchangedLists are digests of lists that are as control remembers them. The
// zero value knows none.
type unchangedLists struct {
	mu  sync.Mutex // guards set
	set map[[32]byte]struct{}
}

func (u *unchangedLists) has(digest [32]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.set[digest]
	return known
}

func (u *unchangedLists) add(digest [32]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.set == nil || len(u.set) == listsKnown {
		u.set = map[[32]byte]struct{}{}
	}
	u.set[digest] = struct{}{}
}
