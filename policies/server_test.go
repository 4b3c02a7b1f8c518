package policies

import (
	"slices"
	"sync"
	"testing"
	"unsafe"
)

// TestUnaskedServerIsItsStrings holds what doc comments say: 100,000 servers
// that nobody asks about cost 11 MB beside their strings.
func TestUnaskedServerIsItsStrings(t *testing.T) {
	if size := unsafe.Sizeof(Server{}); size > 112 {
		t.Errorf("a server takes %d bytes", size)
	}
	p, asked, unasked := compiled(t, Standard()), &Server{Name: "a"}, &Server{Name: "b"}
	if _, err := p.evaluate(t.Context(), &Input{Server: asked, Action: ActionCall}); err != nil {
		t.Fatal(err)
	}
	if asked.seen.Load() == nil || unasked.seen.Load() != nil {
		t.Error("a server's term is not made when it is first asked for")
	}
}

// TestServerHasOneNumber although many ask for it at once.
func TestServerHasOneNumber(t *testing.T) {
	last := uint64(0)
	for range 500 {
		s, begin := &Server{Name: "a"}, make(chan bool)
		numbers := make([]uint64, 8)
		var group sync.WaitGroup
		for i := range numbers {
			group.Go(func() {
				<-begin
				if seen, err := s.read(); err == nil {
					numbers[i] = seen.number
				}
			})
		}
		close(begin)
		group.Wait()
		if slices.Min(numbers) <= last || slices.Max(numbers) != numbers[0] {
			t.Fatalf("numbers %v after %d", numbers, last)
		}
		last = numbers[0]
	}
}

func TestServerThatIsNotJSONIsAnError(t *testing.T) {
	p := compiled(t, Standard())
	for _, s := range []*Server{{Grants: []byte(`[`)}, {Data: []byte(`{"a":1,"a":2}`)}} {
		d, err := p.Decide(t.Context(), &Input{Server: s, Action: ActionCall})
		if err == nil || d.Allow || s.seen.Load() != nil {
			t.Errorf("%+v, %v", d, err)
		}
	}
}
