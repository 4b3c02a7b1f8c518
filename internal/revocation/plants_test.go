package revocation

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlants puts bugs into the protocol, one after the other, and demands that
// the simulation finds each: an invariant that no bug can break proves nothing.
//
// A plant is a text: what is wrong, then which snippet of which file becomes
// what. The tree is not touched; `go test -overlay` compiles the plant.
func TestPlants(t *testing.T) {
	if os.Getenv(inPlant) != "" {
		t.Fatal("a plant runs the simulation only")
	}
	paths, err := filepath.Glob("testdata/plants/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no plants: %v", err)
	}
	slots := make(chan struct{}, 2)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			testPlant(t, path)
		})
	}
}

const inPlant = "ARBITER_PLANT"

// plantSeeds is how many simulations may pass before a plant is found.
const plantSeeds = "20000"

var foundBy = regexp.MustCompile(`invariant violated by seed (\d+): (.*)`)

func testPlant(t *testing.T, path string) {
	overlay := plant(t, path)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay,
		"-run=^TestSimulation$", "-count=1", "-seeds="+plantSeeds, ".")
	cmd.Env = append(os.Environ(), inPlant+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	found := foundBy.FindSubmatch(out)
	switch {
	case err == nil:
		t.Errorf("no simulation finds it:\n%s", out)
	case !errors.As(err, &exit) || found == nil:
		t.Errorf("it does not run: %v\n%s", err, out)
	default:
		t.Logf("found by seed %s: %s", found[1], found[2])
	}
}

// plant writes the patched files beside an overlay that names them.
func plant(t *testing.T, path string) (overlay string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, replace, sources := t.TempDir(), map[string]string{}, map[string]string{}
	steps := strings.Split(string(text), "\n-- ")[1:]
	if len(steps) == 0 || len(steps)%2 != 0 {
		t.Fatalf("%s does not say what to find and what to put there", path)
	}
	for i := 0; i < len(steps); i += 2 {
		name, find, _ := strings.Cut(steps[i], ": find --\n")
		_, put, _ := strings.Cut(steps[i+1], "put --\n")
		put = strings.TrimSuffix(put, "\n")
		source, known := sources[name]
		if !known {
			read, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source = string(read)
		}
		if strings.Count(source, find) != 1 {
			t.Fatalf("the plant is stale: %s has %d times\n%s", name, strings.Count(source, find), find)
		}
		sources[name] = strings.Replace(source, find, put, 1)
	}
	for name, source := range sources {
		original, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = filepath.Join(dir, name)
		write(t, replace[original], source)
	}
	text, err = json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	write(t, overlay, string(text))
	return overlay
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
