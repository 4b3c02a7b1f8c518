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
	srv     *server
	known   map[string]definitionText
	leftOut []string // names of those that cannot be compared
}

// definitionText is a definition in its canonical form.
type definitionText struct {
	hash [32]byte
	text []byte
}

const (
	listsQueued = 256
	askWithin   = 2 * time.Second // an answer waits less: filterTime
	// listsKnown is how many different lists of a server a replica knows to
	// be unchanged: its pages, and what each caller is shown of them.
	listsKnown   = 64
	toolsMost    = 4096 // of one list answer
	toolNameMost = 1024 // bytes
	toolTextMost = 16 << 10
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
	return d.see(ctx, srv, items)
}

// see is told the tools of one list answer, and says which of them may not be
// used: those that have changed, and those that cannot be compared. An error
// says that nobody could tell.
func (d *definitions) see(ctx context.Context, srv *server, tools []lists.Item) (map[string]bool, error) {
	l, err := readTools(srv, tools)
	if err != nil || len(l.known)+len(l.leftOut) == 0 || srv.listed.has(l.digest()) {
		return nil, err
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
// changes what is denied also changes those.
func (d *definitions) ask(ctx context.Context, l toolList) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	in := &pb.ToolsRequest{ServerId: l.srv.id.String(), LeftOut: uint32(len(l.leftOut))}
	for _, name := range slices.Sorted(maps.Keys(l.known)) {
		one := l.known[name]
		in.Tools = append(in.Tools, &pb.ToolDefinition{Name: name, Hash: one.hash[:], Definition: one.text})
	}
	out, err := d.control.Tools(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("asking control about tools: %w", err)
	}
	held := append(out.GetChanged(), l.leftOut...)
	if len(held) == 0 || !l.srv.denyChanged {
		l.srv.listed.add(l.digest())
		return nil, nil
	}
	changed := make(map[string]bool, len(held))
	for _, name := range held {
		changed[name] = true
	}
	return changed, nil
}

// digest names exactly these tools with these definitions.
func (l toolList) digest() [32]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(l.known)) {
		of, hash := sha256.Sum256([]byte(name)), l.known[name].hash
		h.Write(of[:])
		h.Write(hash[:])
	}
	for _, name := range l.leftOut {
		of := sha256.Sum256([]byte(name))
		h.Write(of[:])
	}
	return [32]byte(h.Sum(nil))
}

// readTools reads the tools of a list. Two of one name count as one that is
// both. Names that are too long, and tools beyond toolsMost, are left out: no
// list keeps a replica busy.
func readTools(srv *server, tools []lists.Item) (toolList, error) {
	l := toolList{srv: srv, known: make(map[string]definitionText, min(len(tools), toolsMost))}
	for i, tool := range tools {
		if i >= toolsMost || len(tool.Name) > toolNameMost {
			l.leftOut = append(l.leftOut, tool.Name)
			continue
		}
		one, err := definitionOf(tool.Value)
		if err != nil {
			return l, err
		}
		if before, twice := l.known[tool.Name]; twice {
			one = definitionText{hash: sha256.Sum256(slices.Concat(before.hash[:], one.hash[:]))}
		}
		l.known[tool.Name] = one
	}
	return l, nil
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
func definitionOf(tool jsontext.Value) (out definitionText, err error) {
	var d definition
	if err := json.Unmarshal(tool, &d); err != nil {
		return out, errDefinition
	}
	text, err := json.Marshal(d)
	if err != nil {
		return out, errDefinition
	}
	canonical := jsontext.Value(text)
	if err := canonical.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return out, errDefinition
	}
	if out.hash = sha256.Sum256(canonical); len(canonical) <= toolTextMost {
		out.text = canonical
	}
	return out, nil
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
