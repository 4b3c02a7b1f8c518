package layout_test

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestLinks holds that every relative link of every document has a target.
func TestLinks(t *testing.T) {
	walk(t, ".md", func(file string) {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range links(string(content)) {
			if !exists(file, target) {
				t.Errorf("%s links to %s, which is not there", file, target)
			}
		}
	})
}

// exists says whether a link in a document, itself named by its path from the
// root, leads to something in the repository.
func exists(document, target string) bool {
	place := path.Join(path.Dir(document), target)
	if path.IsAbs(target) {
		place = path.Join(".", target)
	}
	if !filepath.IsLocal(filepath.FromSlash(place)) {
		return false
	}
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(place)))
	return err == nil
}

var (
	fence      = regexp.MustCompile("(?ms)^ *(```|~~~).*?^ *(```|~~~) *$")
	code       = regexp.MustCompile("`[^`\n]*`")
	inline     = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+["'(][^\n]*?)?\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]\n]+\]:\s*<?([^\s>]+)`)
)

// links returns the relative links of a Markdown text, without fragment; what
// stands in code is no link.
func links(text string) []string {
	text = code.ReplaceAllString(fence.ReplaceAllString(text, ""), "code")
	var out []string
	for _, found := range slices.Concat(inline.FindAllStringSubmatch(text, -1), definition.FindAllStringSubmatch(text, -1)) {
		link, err := url.Parse(found[1])
		if err != nil {
			out = append(out, found[1])
			continue
		}
		if link.Scheme == "" && link.Host == "" && link.Path != "" {
			out = append(out, link.Path)
		}
	}
	return out
}

func TestLinksAreFound(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"inline", "see [a](docs/a.md) and [b](../b.go#L10), [c](c.md \"title\")", []string{"docs/a.md", "../b.go", "c.md"}},
		{"image", "![flow](flow.svg)", []string{"flow.svg"}},
		{"code as text", "[`check.go`](extauthz/check.go)", []string{"extauthz/check.go"}},
		{"definition", "[a][x]\n\n[x]: docs/a.md\n", []string{"docs/a.md"}},
		{"escaped", "[a](a%20b.md)", []string{"a b.md"}},
		{"angle brackets", "[a](<a.md>)", []string{"a.md"}},
		{"elsewhere", "[a](https://example.com/a.md) [b](#here) [m](mailto:a@example.com)", nil},
		{"in code", "`[a](gone.md)`\n\n```\n[a](gone.md)\n```\n", nil},
		{"after code", "```\nx\n```\n[a](a.md)\n```\ny\n```\n", []string{"a.md"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := links(tt.text); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLinkTargets(t *testing.T) {
	tests := []struct {
		document, target string
		want             bool
	}{
		{"README.md", "LICENSE", true},
		{"README.md", "internal/layout", true},
		{"docs/a.md", "../go.mod", true},
		{"docs/a.md", "/go.mod", true},
		{"docs/a.md", "go.mod", false},
		{"README.md", "gone.md", false},
		{"README.md", "../../go.mod", false},
	}
	for _, tt := range tests {
		if got := exists(tt.document, tt.target); got != tt.want {
			t.Errorf("%s -> %s: %t, want %t", tt.document, tt.target, got, tt.want)
		}
	}
}
