package jsonrpc

import "github.com/go-json-experiment/json/jsontext"

// params is what stood under the protocol's keys of params; nil: no such key.
// Which of it matters is known only with the method, which may come later.
type params struct {
	raw                              jsontext.Value // nil when absent or null
	name, uri, task, level, revision jsontext.Value
	arguments                        jsontext.Value
	ref                              ref
	filter                           filter
	meta                             Meta
}

// ref is params.ref of completion/complete.
type ref struct {
	kind, name, uri jsontext.Value
	ambiguous       bool
}

// filter is params.notifications of subscriptions/listen.
type filter struct {
	uris      []jsontext.Value
	wrong     bool // resourceSubscriptions is not an array
	ambiguous bool
}

// slot is where the plain value of a key is kept; nil for other keys.
func (p *params) slot(key string) *jsontext.Value {
	switch key {
	case byName:
		return &p.name
	case byURI:
		return &p.uri
	case byTask:
		return &p.task
	case byLevel:
		return &p.level
	case "protocolVersion":
		return &p.revision
	}
	return nil
}

// params reads the value of params.
func (r *reader) params(p *params) (err error) {
	switch r.dec.PeekKind() {
	case '{':
		var ambiguous bool
		p.raw, ambiguous, err = r.object(paramsKeys, func(key string) error { return r.param(p, key) })
		if ambiguous {
			r.note(ReasonAmbiguousKey, "a key of /params "+almost)
		}
		return err
	case '[':
		p.raw, err = r.value()
		return err
	case 'n':
		_, err = r.scalar()
		return err
	}
	if _, err = r.scalar(); err != nil {
		return err
	}
	return r.invalid(ReasonParams, "params must be an object, or an array where that is allowed")
}

// param reads the value of one key of params.
func (r *reader) param(p *params, key string) (err error) {
	switch key {
	case "_meta":
		return r.meta(&p.meta)
	case byRef:
		return r.ref(&p.ref)
	case "notifications":
		return r.filter(&p.filter)
	case "arguments":
		p.arguments, err = r.arguments()
		return err
	}
	raw, err := r.value()
	if slot := p.slot(key); slot != nil {
		*slot = raw
	}
	return err
}

// arguments reads a value in which no object, at any depth, may have two names
// that are equal after case folding: one of them is what policy saw, the other
// might be what a careless upstream takes.
func (r *reader) arguments() (jsontext.Value, error) {
	kind := r.dec.PeekKind()
	if !nested(kind) {
		return r.scalar()
	}
	start, err := r.enter()
	if err != nil {
		return nil, err
	}
	if kind == '{' {
		r.folded.open()
	}
	for r.more() {
		if kind == '{' {
			name, err := r.name()
			if err != nil {
				return nil, err
			}
			if !r.folded.add(name) {
				r.note(ReasonAmbiguousArgument, "two keys of one object in /params/arguments differ only by case")
			}
		}
		if _, err := r.arguments(); err != nil {
			return nil, err
		}
	}
	if kind == '{' {
		r.folded.close()
	}
	return r.leave(start)
}

// meta reads params._meta.
func (r *reader) meta(m *Meta) error {
	switch r.dec.PeekKind() {
	case '{':
	case 'n':
		_, err := r.scalar()
		return err
	default:
		r.note(ReasonParam, "/params/_meta must be an object")
		_, err := r.value()
		return err
	}
	_, ambiguous, err := r.object(metaKeys, func(key string) error { return r.metaMember(m, key) })
	if ambiguous {
		r.note(ReasonAmbiguousKey, "a key of /params/_meta "+almost)
	}
	return err
}

// metaMember reads the value of one key of params._meta.
func (r *reader) metaMember(m *Meta, key string) error {
	raw, err := r.value()
	if err != nil {
		return err
	}
	switch key {
	case metaVersion:
		if m.ProtocolVersion, m.HasProtocolVersion = text(raw); !m.HasProtocolVersion {
			r.note(ReasonParam, "protocolVersion in /params/_meta must be a string")
		}
	case metaCapabilities:
		if m.HasClientCapabilities = raw.Kind() == '{'; !m.HasClientCapabilities {
			r.note(ReasonParam, "clientCapabilities in /params/_meta must be an object")
		}
	}
	return nil
}

// ref reads params.ref; anything but an object leaves it empty.
func (r *reader) ref(f *ref) (err error) {
	if r.dec.PeekKind() != '{' {
		_, err = r.value()
		return err
	}
	_, f.ambiguous, err = r.object(refKeys, func(key string) error {
		raw, err := r.value()
		switch key {
		case "type":
			f.kind = raw
		case byName:
			f.name = raw
		case byURI:
			f.uri = raw
		}
		return err
	})
	return err
}

// filter reads params.notifications; anything but an object leaves it empty.
func (r *reader) filter(f *filter) (err error) {
	if r.dec.PeekKind() != '{' {
		f.wrong = true
		_, err = r.value()
		return err
	}
	_, f.ambiguous, err = r.object(filterKeys, func(key string) error {
		if key == "resourceSubscriptions" && r.dec.PeekKind() == '[' {
			return r.uris(f)
		}
		raw, err := r.value()
		f.wrong = f.wrong || key == "resourceSubscriptions" && raw.Kind() != 'n'
		return err
	})
	return err
}

// uris reads the elements of resourceSubscriptions.
func (r *reader) uris(f *filter) error {
	start, err := r.enter()
	if err != nil {
		return err
	}
	for r.more() {
		uri, err := r.value()
		if err != nil {
			return err
		}
		f.uris = append(f.uris, uri)
	}
	_, err = r.leave(start)
	return err
}
