package health

import (
	"net/http"
	"net/http/pprof"
)

// WithProfiles adds Go's profiler under /debug/pprof/. A profile shows what a
// process does and, of its memory, what it holds: only for a socket that nobody
// but the operator reaches, never beside Routes on a port.
func WithProfiles(routes http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", routes)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
