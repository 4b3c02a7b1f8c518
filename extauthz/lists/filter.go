package lists

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind is a member of a result that makes it a list.
type Kind string

// The kinds (MCP 2024-11-05 to 2026-07-28, server/tools, prompts, resources).
const (
	Tools     Kind = "tools"
	Prompts   Kind = "prompts"
	Resources Kind = "resources"
	Templates Kind = "resourceTemplates"
)

// Most is how long one message may be, in bytes: an answer in JSON, or an event
// with all of its lines.
const Most = 4 << 20

// Item is one item of a list that can be asked about.
type Item struct {
	Name  string         // by its kind: name, uri or uriTemplate; never empty
	Value jsontext.Value // the whole of it; holds only during the call
}

// Show says of each item of one list, all of one kind, whether the caller may
// know of it. It is asked when the whole answer has been read and can be read
// in one way. Its error ends the answer.
type Show func(kind Kind, items []Item) ([]bool, error)

// Filter is what is done to one caller's answers.
type Filter struct {
	Show Show
	// Private marks lists as this caller's own: result.cacheScope becomes
	// "private" (MCP 2026-07-28, server/utilities/caching; without it, a list
	// may be given to others).
	Private bool
}

// Message filters one JSON-RPC message, or a batch of them. It says how many
// items it took out. The answer is body itself when nothing changes. An error
// is a *Refusal, or Show's own.
func (f Filter) Message(body []byte) (out []byte, hidden int, err error) {
	if len(body) > Most {
		return nil, 0, &Refusal{ReasonTooLong}
	}
	w := newWalker(f, body)
	if err := w.all(); err != nil {
		return nil, 0, err
	}
	for _, l := range w.lists {
		if hidden, err = w.take(l, hidden); err != nil {
			return nil, 0, err
		}
	}
	return w.apply(), hidden, nil
}

// The members that are looked at. What is equal to one of them only to a
// careless reader is refused.
var (
	messageKeys = newKeys("jsonrpc", "id", "method", "params", "result", "error")
	resultKeys  = newKeys(string(Tools), string(Prompts), string(Resources), string(Templates), cacheScope)
	itemKeys    = map[Kind]keys{
		Tools: newKeys("name"), Prompts: newKeys("name"), Resources: newKeys("uri"), Templates: newKeys("uriTemplate"),
	}
)

const (
	cacheScope = "cacheScope"
	private    = `"private"`
)

// all reads everything that there is.
func (w *walker) all() error {
	if w.dec.PeekKind() != '[' {
		if err := w.message(); err != nil {
			return err
		}
		return w.end()
	}
	if err := w.array(w.message); err != nil {
		return err
	}
	return w.end()
}

func (w *walker) message() error {
	if w.dec.PeekKind() != '{' {
		return w.wrong(ReasonNotMessage)
	}
	_, err := w.object(messageKeys, func(key string) error {
		if key == "result" && w.dec.PeekKind() == '{' {
			return w.result()
		}
		_, err := w.value()
		return err
	})
	return err
}

// result reads an object that is a list when one of its members says so.
func (w *walker) result() error {
	var isList bool
	var scope span // of cacheScope's value
	whole, err := w.object(resultKeys, func(key string) (err error) {
		switch {
		case key == cacheScope:
			scope, err = w.value()
		case key == "" || w.dec.PeekKind() == 'n': // null holds nothing to show
			_, err = w.value()
		default:
			isList = true
			err = w.list(Kind(key))
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !isList || !w.filter.Private:
	case scope.to > 0:
		w.replace(scope, private)
	default: // a member follows: the list
		start := whole.from + 1
		w.replace(span{start, start}, `"`+cacheScope+`":`+private+`,`)
	}
	return nil
}

// list is an array of one kind.
type list struct {
	kind  Kind
	items []span
	names []string // of each; "" where there is none
}

// list reads the array of a kind.
func (w *walker) list(kind Kind) error {
	if w.dec.PeekKind() != '[' {
		return w.wrong(ReasonNotArray)
	}
	l := list{kind: kind}
	err := w.array(func() error {
		at, name, err := w.item(kind)
		l.items, l.names = append(l.items, at), append(l.names, name)
		return err
	})
	w.lists = append(w.lists, l)
	return err
}

// item reads one item of a list. It has no name when it is no object, or when
// readers may differ about its name.
func (w *walker) item(kind Kind) (at span, name string, err error) {
	if w.dec.PeekKind() != '{' {
		at, err = w.value()
		return at, "", err
	}
	at, err = w.object(itemKeys[kind], func(key string) error {
		isText := w.dec.PeekKind() == '"'
		value, err := w.value()
		if err == nil && key != "" && isText {
			name = w.text(value)
		}
		return err
	})
	if errors.Is(err, errAmbiguous) { // of its own keys: nobody else's reading changes
		return at, "", nil
	}
	return at, name, err
}

// take takes out of a list what may not be shown, each item with the comma that
// it needed, and counts it.
func (w *walker) take(l list, hidden int) (int, error) {
	shown, err := w.shown(l)
	if err != nil {
		return hidden, err
	}
	first := -1 // that stays
	for i, at := range l.items {
		switch {
		case !shown[i]:
			hidden++
			if first >= 0 {
				w.replace(span{l.items[i-1].to, at.to}, "")
			}
		case first < 0:
			first = i
			w.replace(span{l.items[0].from, at.from}, "")
		}
	}
	if first < 0 && len(l.items) > 0 {
		w.replace(span{l.items[0].from, l.items[len(l.items)-1].to}, "")
	}
	return hidden, nil
}

// shown says which items stay.
func (w *walker) shown(l list) ([]bool, error) {
	out, asked, places := make([]bool, len(l.items)), []Item{}, []int{}
	for i, at := range l.items {
		if l.names[i] != "" {
			asked = append(asked, Item{l.names[i], w.body[at.from:at.to:at.to]})
			places = append(places, i)
		}
	}
	if len(asked) == 0 {
		return out, nil
	}
	answers, err := w.filter.Show(l.kind, asked)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		out[place] = answers[i]
	}
	return out, nil
}
