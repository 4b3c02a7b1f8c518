package health_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/internal/health"
)

// Profiles are there only where they were asked for, and only to be read.
func TestProfiles(t *testing.T) {
	plain := health.Routes(func(context.Context) []string { return nil }, prometheus.NewRegistry())
	for _, row := range []struct {
		name         string
		routes       http.Handler
		method, path string
		status       int
		body         string
	}{
		{"not asked for", plain, "GET", "/debug/pprof/", 404, ""},
		{"not asked for, CPU", plain, "GET", "/debug/pprof/profile?seconds=1", 404, ""},
		{"memory", health.WithProfiles(plain), "GET", "/debug/pprof/heap?debug=1", 200, "heap profile"},
		{"CPU", health.WithProfiles(plain), "GET", "/debug/pprof/profile?seconds=1", 200, "\x1f\x8b"},
		{"the rest stays", health.WithProfiles(plain), "GET", "/livez", 200, "ok"},
		{"not to be written", health.WithProfiles(plain), "POST", "/debug/pprof/heap", 404, ""},
		{"nothing else of the package", health.WithProfiles(plain), "GET", "/debug/pprof/cmdline", 404, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			row.routes.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), row.method, row.path, nil))
			if w.Code != row.status || !strings.Contains(w.Body.String(), row.body) {
				t.Errorf("%d, %.80q", w.Code, w.Body.String())
			}
		})
	}
}
