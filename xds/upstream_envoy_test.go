package xds_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// upstream is a server that remembers the last request and answers as it is told.
type upstream struct {
	*httptest.Server

	mu   sync.Mutex
	last *http.Request
	hits int
}

func newUpstream(t *testing.T, answer http.HandlerFunc) *upstream {
	t.Helper()
	up := newUnstartedUpstream(answer)
	up.Start()
	t.Cleanup(up.close)
	return up
}

// newTLSUpstream serves HTTP/1.1 and HTTP/2 with a certificate for name.
func newTLSUpstream(t *testing.T, a authority, name string, answer http.HandlerFunc) *upstream {
	t.Helper()
	up := newUnstartedUpstream(answer)
	up.TLS = a.serverConfig(t, name)
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.close)
	return up
}

func newUnstartedUpstream(answer http.HandlerFunc) *upstream {
	up := &upstream{}
	up.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up.mu.Lock()
		up.last, up.hits = r, up.hits+1
		up.mu.Unlock()
		answer(w, r)
	}))
	return up
}

func (up *upstream) close() {
	up.CloseClientConnections()
	up.Close()
}

func (up *upstream) seen() (last *http.Request, hits int) {
	up.mu.Lock()
	defer up.mu.Unlock()
	return up.last, up.hits
}

// answerJSON is what a well-behaved upstream says.
func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}
