package lists

import "bytes"

// Answer filters one answer in JSON that comes in parts; nothing of it goes on
// before it is whole. Where it ends is told by the JSON itself: an HTTP answer
// may end with trailers, and behind them nothing can be sent.
type Answer struct {
	filter Filter
	held   []byte
	depth  int  // of arrays and objects that are open
	text   bool // inside of a string
	escape bool // behind a backslash
	begun  bool // it has gone on
	hidden int
	err    error
}

// NewAnswer begins an answer.
func NewAnswer(f Filter) *Answer { return &Answer{filter: f} }

// Held is how many bytes it keeps in memory.
func (a *Answer) Held() int { return cap(a.held) }

// Hidden is how many items were taken out.
func (a *Answer) Hidden() int { return a.hidden }

// Begun reports that the answer has gone on: it is too late for another.
func (a *Answer) Begun() bool { return a.begun }

// Next takes the next bytes. With those that complete the answer it returns all
// of it, filtered; with others nothing. Last says that no more will come. An
// error, a *Refusal or Show's own, is final.
func (a *Answer) Next(chunk []byte, last bool) (out []byte, err error) {
	switch {
	case a.err != nil:
	case a.begun:
		if len(bytes.Trim(chunk, " \t\r\n")) > 0 {
			a.err = &Refusal{ReasonInvalid}
		}
	case len(a.held)+len(chunk) > Most:
		a.held, a.err = nil, &Refusal{ReasonTooLong}
	default:
		a.held = append(a.held, chunk...)
		if a.ends(chunk) || last {
			out, a.hidden, a.err = a.filter.Message(a.held)
			a.held, a.begun = nil, a.err == nil
		}
	}
	return out, a.err
}

// ends tells whether the message ends in this chunk: sound JSON does exactly
// where it says so, and Message judges all else.
func (a *Answer) ends(chunk []byte) bool {
	for _, c := range chunk {
		switch {
		case a.escape:
			a.escape = false
		case a.text:
			a.escape, a.text = c == '\\', c != '"'
		case c == '"' && a.depth > 0:
			a.text = true
		case c == '{' || c == '[':
			a.depth++
		case c == '}' || c == ']':
			a.depth--
		}
		blank := c == ' ' || c == '\t' || c == '\r' || c == '\n'
		if a.depth <= 0 && !blank { // the end, or no message at all
			return true
		}
	}
	return false
}
