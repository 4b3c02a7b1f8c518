package lists

import "bytes"

// Stream filters one event stream (WHATWG HTML, section 9.2) as it comes. Whole
// events pass, byte for byte when every reader finds in them what was found
// here; only the event that has not ended is held back, and one that never ends
// is never passed on: readers are told to drop it too.
type Stream struct {
	filter Filter
	held   []byte // what has not been passed on, an event's beginning at most
	line   int    // where the line that has not ended begins in held
	seen   int    // how much of held has no end of a line
	begun  bool   // the first line has been seen
	hidden int
	err    error
}

// NewStream begins a stream.
func NewStream(f Filter) *Stream { return &Stream{filter: f} }

// Held is how many bytes it keeps in memory.
func (s *Stream) Held() int { return cap(s.held) }

// Hidden is how many items were taken out so far.
func (s *Stream) Hidden() int { return s.hidden }

// Next takes the next bytes of the stream and returns what may go on, perhaps
// nothing. Last says that no more will come. How the bytes are split changes
// nothing but the moment. An error, a *Refusal or Show's own, is final; what
// comes with it may still go on.
func (s *Stream) Next(chunk []byte, last bool) (out []byte, err error) {
	if s.err != nil {
		return nil, s.err
	}
	s.held = append(s.held, chunk...)
	done := 0 // of held
	for s.err == nil {
		end, next := lineEnd(s.held, s.seen, last)
		if next == 0 {
			s.seen = end
			break
		}
		out, done = s.ended(out, done, end, next)
		s.line, s.seen = next, next
	}
	if s.err == nil && len(s.held)-done > Most {
		s.err = &Refusal{ReasonTooLong}
	}
	if s.err != nil || done == len(s.held) || last {
		s.held, s.line, s.seen = nil, 0, 0
		return out, s.err
	}
	if done > 0 { // what is left came with this chunk: it is small
		s.held = bytes.Clone(s.held[done:])
		s.line, s.seen = s.line-done, s.seen-done
	}
	return out, nil
}

// lineEnd finds the end of a line and the beginning of the next, or how far
// there is none (next is 0). A CR at the end of what has come may be half a CRLF.
func lineEnd(held []byte, from int, last bool) (end, next int) {
	i := bytes.IndexAny(held[from:], "\r\n")
	if i < 0 {
		return len(held), 0
	}
	end = from + i
	switch {
	case held[end] == '\n':
		return end, end + 1
	case end+1 < len(held) && held[end+1] == '\n':
		return end, end + 2
	case end+1 == len(held) && !last:
		return end, 0
	}
	return end, end + 1
}

// ended handles the line that ends at end: an empty one ends an event, and a
// comment before an event's first field goes on at once, since it may be all
// that comes for a long time.
func (s *Stream) ended(out []byte, done, end, next int) ([]byte, int) {
	if next-done > Most {
		s.err = &Refusal{ReasonTooLong}
		return out, done
	}
	from := s.line
	if !s.begun {
		s.begun = true
		if bom := []byte("\xef\xbb\xbf"); bytes.HasPrefix(s.held[from:end], bom) {
			from, done = from+len(bom), done+len(bom)
		}
	}
	text := s.held[from:end]
	switch {
	case len(text) == 0:
		e := readEvent(s.held[done:next])
		var hidden int
		out, hidden, s.err = e.appendTo(out, s.filter)
		s.hidden += hidden
	case text[0] == ':' && from == done:
		out = appendLine(out, line{text: text, end: s.held[end:next]})
	default:
		return out, done
	}
	return out, next
}
