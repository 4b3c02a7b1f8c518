package jsonrpc

// fit takes out of params what the method is about, and notes where they do not
// fit it.
func (r *reader) fit(m *Message, p *params) {
	key := selectorKey(m.Method)
	if p.raw.Kind() == '[' && (r.rules.Transport == MCP || key != "") {
		r.note(ReasonParamsArray, "/params must be an object")
		return
	}
	m.Params, m.Arguments, m.Meta = p.raw, p.arguments, p.meta
	switch {
	case key == byRef:
		r.fitRef(m, &p.ref)
	case key != "":
		m.Selector, m.HasSelector = text(*p.slot(key))
		r.wantSelector(m, "/params/"+key)
	case m.Method == initialize:
		r.fitInitialize(m, p)
	case m.Method == "subscriptions/listen":
		r.fitSubscriptions(m, &p.filter)
	}
}

// wantSelector notes a selector that is missing. An empty one counts as such:
// in many languages it is what a reader makes of none.
func (r *reader) wantSelector(m *Message, place string) {
	if m.Selector == "" {
		m.HasSelector = false
		r.note(ReasonSelector, place+" must be a non-empty string")
	}
}

// fitRef reads a reference to a prompt or to a resource (template).
func (r *reader) fitRef(m *Message, f *ref) {
	if f.ambiguous {
		r.note(ReasonAmbiguousKey, "a key of /params/ref "+almost)
		return
	}
	m.Ref, _ = text(f.kind)
	chosen, other, place := f.name, f.uri, "/params/ref/name"
	switch m.Ref {
	case "ref/prompt":
	case "ref/resource":
		chosen, other, place = f.uri, f.name, "/params/ref/uri"
	default:
		r.note(ReasonSelector, `/params/ref/type must be "ref/prompt" or "ref/resource"`)
		return
	}
	if other != nil {
		r.note(ReasonSelector, "/params/ref has both name and uri")
		return
	}
	m.Selector, m.HasSelector = text(chosen)
	r.wantSelector(m, place)
}

// fitInitialize reads the revision asked for. Only a session needs one.
func (r *reader) fitInitialize(m *Message, p *params) {
	version, ok := text(p.revision)
	if !ok && (p.revision != nil || r.rules.Transport == MCP) {
		r.note(ReasonParam, "/params/protocolVersion must be a string")
	}
	m.ProtocolVersion = version
}

// fitSubscriptions reads the URIs that a modern caller subscribes to.
func (r *reader) fitSubscriptions(m *Message, f *filter) {
	if f.ambiguous {
		r.note(ReasonAmbiguousKey, "a key of /params/notifications "+almost)
	}
	for _, raw := range f.uris {
		uri, ok := text(raw)
		f.wrong = f.wrong || !ok
		m.Subscriptions = append(m.Subscriptions, uri)
	}
	if f.wrong {
		r.note(ReasonParam, "/params/notifications/resourceSubscriptions must be an array of strings")
	}
}
