package revocation

import "sync"

// broadcast wakes listeners. A notice only says "look again": several may
// arrive as one.
type broadcast struct {
	mu        sync.Mutex // guards listeners
	listeners map[chan struct{}]struct{}
}

func (b *broadcast) listen() (wake <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[chan struct{}]struct{}{}
	}
	b.listeners[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, ch)
	}
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.listeners {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
