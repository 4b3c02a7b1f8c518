package policies

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// slots is how many decisions a policy remembers: 8 bytes each, and some
// hundred with a decision in it.
const slots = 1 << 15

// cache remembers decisions of one policy. Nothing in it ever gets old: a
// decision depends on its key and on the policy, and goes with the policy. A
// slot is overwritten by whatever comes to it, so it never holds more than
// slots. The zero cache is empty and ready.
type cache struct {
	make  sync.Once
	seed  maphash.Seed
	slots atomic.Pointer[[slots]atomic.Pointer[remembered]]
}

type remembered struct {
	key      string // the whole of it
	decision Decision
}

func (c *cache) find(key []byte) (Decision, bool) {
	table := c.slots.Load()
	if table == nil {
		return Decision{}, false
	}
	place := maphash.Bytes(c.seed, key) % slots
	for _, i := range [...]uint64{place, place ^ 1} {
		if one := table[i].Load(); one != nil && one.key == string(key) {
			return one.decision, true
		}
	}
	return Decision{}, false
}

func (c *cache) keep(key []byte, d Decision) {
	if d.weight() > keyMost {
		return
	}
	c.make.Do(func() {
		c.seed = maphash.MakeSeed()
		c.slots.Store(new([slots]atomic.Pointer[remembered]))
	})
	table, h := c.slots.Load(), maphash.Bytes(c.seed, key)
	place := h % slots
	if table[place].Load() != nil && h>>63 == 1 { // of the two that find looks at
		place ^= 1
	}
	table[place].Store(&remembered{key: string(key), decision: d})
}

// weight is how many bytes of text a decision holds.
func (d *Decision) weight() int {
	n := 0
	for _, denial := range d.Denials {
		n += len(denial.Code) + len(denial.Text)
	}
	for _, scope := range d.Scopes {
		n += len(scope)
	}
	for _, header := range d.Headers {
		n += len(header.Name) + len(header.Value)
	}
	return n
}
