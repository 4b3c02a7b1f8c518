package policies

import "encoding/binary"

// keyMost is how many bytes of input a remembered decision may depend on.
const keyMost = 1024

// key spells what a policy can read of an input, so that two inputs with the
// same key are the same to it: each value with its length before it, in one
// order. It is complete, not a digest. It lies on the stack of who makes it.
type key struct {
	room [keyMost]byte
	used int
	over bool // longer than room: no key
}

func (k *key) bytes() []byte { return k.room[:k.used] }

func (k *key) number(n uint64) {
	var spelled [binary.MaxVarintLen64]byte
	k.fill(string(spelled[:binary.PutUvarint(spelled[:], n)]))
}

func (k *key) text(s string) {
	k.number(uint64(len(s)))
	k.fill(s)
}

// textOf spells what the policy can read; nothing stands for the rest.
func (k *key) textOf(readable bool, s string) {
	if readable {
		k.text(s)
	}
}

func (k *key) json(value []byte) {
	k.number(uint64(len(value)))
	if len(value) <= keyMost { // the same text is the same value
		k.fill(string(value))
	} else {
		k.over = true
	}
}

func (k *key) fill(s string) {
	if k.over = k.over || len(s) > keyMost-k.used; !k.over {
		k.used += copy(k.room[k.used:], s)
	}
}

// texts tells no list, which is 0, from an empty one.
func (k *key) texts(list []string, there bool) {
	if !there {
		k.number(0)
		return
	}
	k.number(uint64(len(list)) + 1)
	for _, s := range list {
		k.text(s)
	}
}

func (k *key) flag(set bool) {
	if set {
		k.number(1)
	} else {
		k.number(0)
	}
}

// key spells the parts that term builds; ok is false when the answer depends on
// the time, or on more than a key may hold.
func (in *Input) key(k *key, all Reads) (ok bool, err error) {
	reads := all.parts
	if reads.has(partTime) {
		return false, nil
	}
	if reads.has(partPrincipal) {
		in.Principal.key(k, reads)
	}
	if reads.has(partServer) {
		var number uint64 // 0: none
		if in.Server != nil {
			server, err := in.Server.read()
			if err != nil {
				return false, err
			}
			number = server.number
		}
		k.number(number)
	}
	k.textOf(reads.has(partTransport), in.Transport)
	k.textOf(reads.has(partAction), string(in.Action))
	if reads.has(partCall) {
		k.flag(in.Call != nil)
		if in.Call != nil {
			in.Call.key(k, reads)
		}
	}
	if reads.has(partRequest) {
		in.Request.key(k, reads)
	}
	return !k.over, nil
}

func (p *Principal) key(k *key, reads part) {
	k.textOf(reads.has(partKind), string(p.Kind))
	k.textOf(reads.has(partID), p.Subject)
	k.textOf(reads.has(partClient), p.Client)
	k.textOf(reads.has(partUser), p.User)
	k.textOf(reads.has(partIssuer), p.Issuer)
	k.textOf(reads.has(partName), p.Name)
	if reads.has(partPrincipalServer) {
		k.json(p.Principal.Server[:])
	}
	if reads.has(partScopes) {
		k.texts(p.Scopes, p.Narrowed)
	}
	if reads.has(partClaims) {
		k.json(p.Claims)
	}
	if reads.has(partCertificate) {
		k.flag(p.Certificate != nil)
		if p.Certificate != nil {
			p.Certificate.key(k)
		}
	}
}

func (c *Certificate) key(k *key) {
	k.text(c.Fingerprint)
	k.text(c.Serial)
	k.text(c.Issuer)
	k.text(c.URI)
	k.flag(c.NotAfter.IsZero())
	k.number(uint64(c.NotAfter.UnixNano()))
}

func (c *Call) key(k *key, reads part) {
	k.textOf(reads.has(partMethod), c.Method)
	k.textOf(reads.has(partTool), c.Tool)
	k.textOf(reads.has(partPrompt), c.Prompt)
	k.textOf(reads.has(partResource), c.Resource)
	k.textOf(reads.has(partTemplate), c.Template)
	k.textOf(reads.has(partTask), c.Task)
	k.textOf(reads.has(partLevel), c.Level)
	if reads.has(partRef) {
		k.flag(c.Ref != nil)
		if c.Ref != nil {
			k.text(c.Ref.Type)
			k.text(c.Ref.Name)
		}
	}
	if reads.has(partSubscriptions) {
		k.texts(c.Subscriptions, len(c.Subscriptions) > 0)
	}
	if reads.has(partArguments) {
		k.json(c.Arguments)
	}
	if reads.has(partParams) {
		k.json(c.Params)
	}
	k.textOf(reads.has(partVersion), c.ProtocolVersion)
	if reads.has(partNotification) {
		k.flag(c.Notification)
	}
	if reads.has(partBatch) {
		k.flag(c.Batch)
		k.number(uint64(c.BatchIndex))
	}
}

func (r *Request) key(k *key, reads part) {
	k.textOf(reads.has(partVerb), r.Method)
	k.textOf(reads.has(partPath), r.Path)
	k.textOf(reads.has(partHost), r.Host)
	k.textOf(reads.has(partSource), r.Source)
	if reads.has(partHeaders) {
		k.number(uint64(len(r.Headers)))
		for _, h := range r.Headers {
			k.text(h.Name)
			k.text(h.Value)
		}
	}
}
