package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

func TestEditingADirectory(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), openStore(t)
	write(t, dir, "policy.rego", allowAll)
	f := run(t, s, directory(t, dir))
	f.decides(allowAll)

	began := time.Now()
	write(t, dir, "policy.rego", allowOne)
	f.decides(allowOne)
	t.Logf("live after %v", time.Since(began))

	write(t, dir, "policy.rego", broken)
	f.refused("policy.rego:4")
	f.decides(allowOne)
	if err := f.Fault(); err != nil {
		t.Errorf("what is offered is the fault of what decides: %v", err)
	}
	write(t, dir, "notes.txt", "not of the policy")
	write(t, dir, ".policy.rego.swp", "an editor's")
	write(t, dir, "policy.rego", broken) // saved again
	before, err := s.Policy(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	write(t, dir, "policy.rego", allowOne) // undone
	f.mended()
	if n := f.log.lines("policy refused", "policy.rego:4"); n != 1 {
		t.Errorf("one fault was told %d times:\n%s", n, f.log)
	}
	if after, err := s.Policy(t.Context()); err != nil || after.Settings != before.Settings {
		t.Errorf("what decides already was stored again: %+v, %v", after, err)
	}
	write(t, dir, "policy.rego", allowAll)
	f.decides(allowAll)
}

// A refused policy changes nothing for those who ask, however it is refused.
func TestOtherFaultsOfADirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "policy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "policy.rego", allowAll)
	f := run(t, openStore(t), directory(t, dir))
	write(t, dir, "policy_test.rego", untrue)
	f.refused("policy_test.rego:5: test_denies")
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	f.refused("no such file or directory")
	f.decides(allowAll)
	if err := os.Remove(filepath.Join(dir+"-gone", "policy_test.rego")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"-gone", dir); err != nil {
		t.Fatal(err)
	}
	f.mended()
	if err := os.Remove(filepath.Join(dir, "policy.rego")); err != nil {
		t.Fatal(err)
	}
	f.refused("no Rego")
	f.decides(allowAll)
	write(t, dir, "policy.rego", allowOne)
	f.decides(allowOne)
	f.mended()
}

// Editors write in many ways. Whatever lies there between two moments, what is
// there in the end decides.
func TestSaves(t *testing.T) {
	for _, tt := range []struct {
		name string
		save func(t *testing.T, dir string)
	}{
		{"truncated, then written in parts", func(t *testing.T, dir string) {
			file, err := os.OpenFile(filepath.Join(dir, "policy.rego"), os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			for _, part := range []string{allowOne[:20], allowOne[20:]} {
				if _, err := file.WriteString(part); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"twice, the first one broken", func(t *testing.T, dir string) {
			write(t, dir, "policy.rego", broken)
			write(t, dir, "policy.rego", allowOne)
		}},
		{"renamed over", func(t *testing.T, dir string) {
			write(t, dir, ".policy.rego~", allowOne)
			if err := os.Rename(filepath.Join(dir, ".policy.rego~"), filepath.Join(dir, "policy.rego")); err != nil {
				t.Fatal(err)
			}
		}},
		{"the directory renamed over", func(t *testing.T, dir string) {
			if err := os.Mkdir(dir+".new", 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+".new", "policy.rego", allowOne)
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir+".new", dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"the same size and time", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "policy.rego")
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "policy.rego", allowOne)
			if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "policy")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "policy.rego", strings.Replace(allowOne, "one", "two", 1))
			f := run(t, openStore(t), directory(t, dir))
			tt.save(t, dir)
			f.decides(allowOne)
			f.mended()
		})
	}
}

// A mount of Kubernetes: files are links, and one link is put over.
func TestLinkedDirectory(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "policy")
	for name, text := range map[string]string{"..one": allowAll, "..two": allowOne} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), "policy.rego", text)
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, at+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, at+".new"), filepath.Join(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	link("..one", "..data")
	link("..data/policy.rego", "policy.rego")
	f := run(t, openStore(t), directory(t, dir))
	f.decides(allowAll)
	link("..two", "..data")
	f.decides(allowOne)
}

// Over a restart the last good policy decides, and the fault is told.
func TestRestartOverABrokenDirectory(t *testing.T) {
	dir, s := t.TempDir(), openStore(t)
	write(t, dir, "policy.rego", allowOne)
	run(t, s, directory(t, dir)).stop()

	write(t, dir, "policy.rego", broken)
	f := run(t, s, directory(t, dir))
	f.decides(allowOne)
	f.refused("policy.rego:4")
	if f.log.lines("level=ERROR", "policy.rego:4", "the last good one goes on deciding") != 1 {
		t.Errorf("nobody is told:\n%s", f.log)
	}
	f.stop()

	write(t, dir, "policy.rego", allowAll) // while nobody looks
	run(t, s, directory(t, dir)).decides(allowAll)
}

// Without any policy a broken directory is no start.
func TestFirstStartOverABrokenDirectory(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"broken":  {broken, "policy.rego:4"},
		"untrue":  {"package policy\n\nallow := \n", "policy.rego:4"},
		"nothing": {"", "policy.rego"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, s := t.TempDir(), openStore(t)
			write(t, dir, "policy.rego", tt.text)
			if _, err := try(t, s, directory(t, dir)); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if _, err := s.Policy(t.Context()); err == nil {
				t.Error("something was stored")
			}
		})
	}
}

// What another control of the store accepted stays until the directory changes.
func TestUnchangedDirectoryDoesNotUndoOthers(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), openStore(t)
	write(t, dir, "policy.rego", allowOne)
	f := run(t, s, directory(t, dir))
	f.decides(allowOne)
	if _, err := s.AddPolicy(t.Context(), store.Policy{Revision: policies.Standard().Revision(), Origin: "api", Files: policies.Standard().Files}); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "policy_test.rego", untrue+"# mended\n")
	write(t, dir, "policy.rego", broken) // read, and refused
	f.refused("policy.rego:4")
	if stored, err := s.Policy(t.Context()); err != nil || stored.Origin != "api" {
		t.Errorf("stored %+v, %v", stored, err)
	}
	if err := os.Remove(filepath.Join(dir, "policy_test.rego")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "policy.rego", allowAll)
	f.decides(allowAll)
}

// What is still being written is not read: not before it has lain still for as
// long as two looks are apart.
func TestWaitUntilFilesLieStill(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.rego", allowAll)
	synctest.Test(t, func(t *testing.T) {
		d := directory(t, dir)
		if _, err := d.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		returned := make(chan time.Time, 1)
		go func() {
			d.Wait(t.Context())
			returned <- time.Now()
		}()
		var last time.Time
		for i := range 6 {
			time.Sleep(150 * time.Millisecond)
			write(t, dir, "policy.rego", allowAll+strings.Repeat("#", i+1))
			last = time.Now()
		}
		if after := (<-returned).Sub(last); after < 200*time.Millisecond || after > 500*time.Millisecond {
			t.Errorf("read %v after the last write", after)
		}
	})
}

// What cannot be seen without reading is found too, a little later.
func TestWaitReadsNowAndThen(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.rego", allowAll)
	synctest.Test(t, func(t *testing.T) {
		d := directory(t, dir)
		if _, err := d.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if d.Wait(t.Context()); time.Since(began) < time.Second || time.Since(began) > 5*time.Second {
			t.Errorf("nothing changed, and it waited for %v", time.Since(began))
		}
	})
}
