//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/e2e/clients"
)

// stage is what one example is shown on: a gateway, an upstream with tools, and
// an era.
type stage struct {
	*gateway
	upstream string
	eras     string
	revision string
}

// TestPolicyExamples shows each example of examples/policies with a client of
// the SDK: it reads why something is denied, its session goes on, and what is
// hidden is neither listed nor known.
func TestPolicyExamples(t *testing.T) {
	g := start(t, "ARBITER_POLICY_DIR=none")
	upstream := toolbox(t, "get_issue", "create_issue", "read_file", "delete_file", "generate_image", "list_holidays", "pay")
	for _, s := range []*stage{{g, upstream, "legacy", clients.LegacyRevision}, {g, upstream, "legacy,modern", clients.ModernRevision}} {
		t.Run(s.revision, func(t *testing.T) {
			t.Run("read-only", s.readOnly)
			t.Run("tools-by-team", s.toolsByTeam)
			t.Run("arguments", s.arguments)
			t.Run("office-hours", s.officeHours)
			t.Run("rate-limit", s.rateLimit)
			t.Run("deny-and-hide", s.denyAndHide)
		})
	}
}

// server adds a server with a label.
func (s *stage) server(t *testing.T, label string) string {
	t.Helper()
	return s.addServer(t, s.upstream, "", "--eras", s.eras, "--label", label)
}

// joins connects an agent in the era of the stage.
func (s *stage) joins(t *testing.T, server, token string) *agent {
	t.Helper()
	a := s.agent(t, server, token, false)
	if got := a.InitializeResult().ProtocolVersion; got != s.revision {
		t.Fatalf("connected with revision %s, want %s", got, s.revision)
	}
	return a
}

func (s *stage) expectTools(t *testing.T, a *agent, want ...string) {
	t.Helper()
	if got := a.sees(t); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("sees %q, want %q", got, want)
	}
}

func (s *stage) readOnly(t *testing.T) {
	s.apply(t, example(t, "read-only", nil))
	server := s.server(t, "kind=github")
	_, token := s.addToken(t, server)
	a := s.joins(t, server, token)
	s.expectTools(t, a, "get_issue", "list_holidays")
	a.isTold(t, "create_issue", nil, "not marked as read-only")
	a.does(t, "get_issue", nil)
}

func (s *stage) toolsByTeam(t *testing.T) {
	server := s.server(t, "kind=tickets")
	who, token := s.addToken(t, server)
	_, stranger := s.addToken(t, server)
	s.apply(t, example(t, "tools-by-team", map[string]any{"teams": map[string]any{"support": map[string]any{
		"members": []any{map[string]any{"id": who}},
		"tools":   map[string]any{"tickets": []string{"get_*", "create_issue"}, "ledger": []string{"*"}},
	}}}))
	a := s.joins(t, server, token)
	s.expectTools(t, a, "get_issue", "create_issue")
	a.isTold(t, "pay", nil, "none of those of your team (support)")
	a.does(t, "create_issue", nil)
	got := s.do(t, call{path: "/servers/" + server + "/mcp", token: stranger, body: initialize})
	if got.status != 200 || got.code() != -31403 || !strings.Contains(got.body, "none of your teams") || got.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("who is in no team: status %d, %s", got.status, got.body)
	}
}

func (s *stage) arguments(t *testing.T) {
	s.apply(t, example(t, "arguments", nil))
	server := s.server(t, "kind=files")
	_, token := s.addToken(t, server)
	a := s.joins(t, server, token)
	s.expectTools(t, a, "read_file", "create_issue")
	for _, path := range []any{"/etc/passwd", "/srv/shared/../../etc/passwd", "/srv/shared/%2e%2e/a", []string{"/srv/shared/a"}, nil} {
		a.isTold(t, "read_file", map[string]any{"path": path}, "at or below /srv/projects/website or /srv/shared")
	}
	a.isTold(t, "read_file", map[string]any{"Path": "/srv/shared/a"}, "an object of these: path, head, tail")
	a.isTold(t, "create_issue", map[string]any{"owner": "acme", "repo": "secret"}, "acme/website, acme/docs")
	a.isTold(t, "delete_file", map[string]any{"path": "/srv/shared/a"}, "take one of")
	a.does(t, "read_file", map[string]any{"path": "/srv/shared/a.txt"})
	a.does(t, "create_issue", map[string]any{"owner": "acme", "repo": "docs", "title": "../.."})
}

// officeHours closes and opens by changing the days: the clock is the machine's.
func (s *stage) officeHours(t *testing.T) {
	everyDay := []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	hours := func(days ...string) string {
		return example(t, "office-hours", map[string]any{"office": map[string]any{"zone": "Europe/Berlin", "days": days, "from": 0, "until": 24}})
	}
	later := time.Now().AddDate(0, 0, 3).Weekday().String()
	server := s.server(t, "kind=any")
	_, token := s.addToken(t, server)
	s.apply(t, hours(everyDay...))
	a := s.joins(t, server, token)
	a.does(t, "get_issue", nil)
	s.apply(t, hours(later))
	a.isTold(t, "get_issue", nil, "open on "+later+" from 0:00 to 24:00 (Europe/Berlin)")
	s.object(t, "", "server", "update", server, "--label", "hours=always")
	a.does(t, "get_issue", nil)
	s.object(t, "", "server", "update", server, "--label", "hours=")
	a.isTold(t, "get_issue", nil, "open on "+later)
	s.apply(t, hours(everyDay...))
	a.does(t, "get_issue", nil)
}

func (s *stage) rateLimit(t *testing.T) {
	s.apply(t, example(t, "rate-limit", nil))
	server := s.server(t, "kind=any")
	_, token := s.addToken(t, server)
	_, other := s.addToken(t, server)
	a := s.joins(t, server, token)
	s.expectTools(t, a, "get_issue", "create_issue", "read_file", "delete_file", "generate_image", "list_holidays", "pay")
	a.does(t, "generate_image", nil)
	a.does(t, "generate_image", nil)
	a.isTold(t, "generate_image", nil, "again")
	a.isTold(t, "Generate_Image", nil, "exactly as tools/list shows it")
	a.does(t, "get_issue", nil)
	s.joins(t, server, other).does(t, "generate_image", nil)
}

func (s *stage) denyAndHide(t *testing.T) {
	server := s.server(t, "team=payroll")
	who, token := s.addToken(t, server)
	_, stranger := s.addToken(t, server)
	s.apply(t, example(t, "deny-and-hide", map[string]any{"teams": map[string]any{"payroll": map[string]any{
		"members": []any{map[string]any{"id": who}}, "shown_to_all": []string{"list_holidays"},
	}}}))
	s.joins(t, server, token).does(t, "pay", nil)
	a := s.joins(t, server, stranger)
	s.expectTools(t, a, "list_holidays")
	if prompts, err := a.ListPrompts(t.Context(), nil); err != nil || len(prompts.Prompts) != 0 {
		t.Errorf("sees prompts: %v, %v", prompts, err)
	}
	hidden, _, code := a.call(t, "pay", nil)
	unknown, _, other := a.call(t, "yap", nil)
	if code != -32602 || other != code || strings.ReplaceAll(hidden, "pay", "yap") != unknown {
		t.Errorf("a hidden tool is answered %d %q, one that does not exist %d %q", code, hidden, other, unknown)
	}
	a.does(t, "list_holidays", nil)
}
