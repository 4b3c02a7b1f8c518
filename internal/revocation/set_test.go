package revocation

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func entryOf(name string, life time.Duration) Entry {
	return Entry{Kind: KindAccessToken, Key: name, Life: life}
}

// The 256 slices of a Set answer as one map would, and no older set changes.
func TestSetIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type kept struct {
			set   *Set
			model map[string]time.Duration
		}
		set, model, now := &Set{}, map[string]time.Duration{}, time.Duration(0)
		var before []kept
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			copied := map[string]time.Duration{}
			for name, until := range model {
				copied[name] = until
			}
			before = append(before, kept{set, copied})
			if rapid.IntRange(0, 3).Draw(t, "without") == 0 {
				now += time.Duration(rapid.IntRange(0, 100).Draw(t, "pass")) * time.Second
				set = set.Without(now)
				for name, until := range model {
					if until+time.Second < now {
						delete(model, name)
					}
				}
				continue
			}
			var entries []Entry
			for range rapid.IntRange(0, 60).Draw(t, "entries") {
				name, life := strconv.Itoa(rapid.IntRange(0, 300).Draw(t, "key")), time.Duration(rapid.IntRange(1, 200).Draw(t, "life"))*time.Second
				entries = append(entries, entryOf(name, life))
				model[name] = max(model[name], now+life)
			}
			set = set.With(entries, now)
		}
		for _, k := range append(before, kept{set, model}) {
			if k.set.Len() != len(k.model) {
				t.Fatalf("%d entries, want %d", k.set.Len(), len(k.model))
			}
			for n := range 301 {
				name := strconv.Itoa(n)
				if _, want := k.model[name]; k.set.Has(key(name).Hash()) != want {
					t.Fatalf("%s: %v, want %v", name, !want, want)
				}
			}
		}
	})
}

func TestSetKeepsTheLongerLife(t *testing.T) {
	for _, lives := range [][2]time.Duration{{time.Minute, time.Hour}, {time.Hour, time.Minute}} {
		set := (&Set{}).With([]Entry{entryOf("one", lives[0])}, 0).With([]Entry{entryOf("one", lives[1])}, 0)
		if set.Len() != 1 || set.Without(59*time.Minute).Len() != 1 || set.Without(time.Hour+2*time.Second).Len() != 0 {
			t.Errorf("lives %v: %d entries", lives, set.Len())
		}
		set = (&Set{}).With([]Entry{entryOf("one", lives[0]), entryOf("one", lives[1])}, 0)
		if set.Len() != 1 || set.Without(59*time.Minute).Len() != 1 {
			t.Errorf("lives %v in one run: %d entries", lives, set.Len())
		}
	}
	unsaid := (&Set{}).With([]Entry{entryOf("one", 0)}, 0)
	if unsaid.Without(Life(CallMost)-time.Second).Len() != 1 {
		t.Error("an entry that does not say how long it lives leaves too early")
	}
}

func TestSetThatNothingLeavesIsTheSame(t *testing.T) {
	set := (&Set{}).With([]Entry{entryOf("one", time.Minute)}, 0)
	if set.Without(time.Minute) != set {
		t.Error("a set is copied for nothing")
	}
}

func TestSetIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(record{}); size != 20 {
		t.Errorf("an entry costs %d bytes", size)
	}
	entries := make([]Entry, 10_000)
	for i := range entries {
		entries[i] = entryOf(strconv.Itoa(i), time.Hour)
	}
	set := (&Set{}).With(entries, 0)
	for i := range set.shards {
		if spare := cap(set.shards[i]) - len(set.shards[i]); spare > 0 {
			t.Fatalf("shard %d has room for %d more", i, spare)
		}
	}
	for range 300 { // churn leaves nothing behind
		set = set.With([]Entry{entryOf("x", time.Second)}, 0)
	}
	if set = set.Without(time.Minute); set.Len() != len(entries) {
		t.Errorf("%d entries, want %d", set.Len(), len(entries))
	}
}

func TestHashesDiffer(t *testing.T) {
	seen := map[Hash]Key{}
	for _, k := range []Key{{KindAccessToken, "a"}, {KindServer, "a"}, {KindAccessToken, ""}, {KindServer, ""}, {KindAccessToken, "\x00a"}} {
		if other, found := seen[k.Hash()]; found {
			t.Errorf("%v and %v share a hash", k, other)
		}
		seen[k.Hash()] = k
	}
}

func TestSeenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	if at, err := ReadSeen(path); err != nil || at != (Position{}) {
		t.Errorf("missing: %v, %v", at, err)
	}
	for _, want := range []Position{{"a", 1, 7}, {"a", 2, 3}} {
		if err := WriteSeen(path, want); err != nil {
			t.Fatal(err)
		}
		if at, err := ReadSeen(path); err != nil || at != want {
			t.Errorf("read %v, %v, want %v", at, err, want)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) - 1 { // torn anywhere: never taken for a position, least of all an earlier one
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if at, err := ReadSeen(path); err == nil {
			t.Errorf("%q was read as %v", whole[:n], at)
		}
	}
	if _, err := ReadSeen(t.TempDir()); err == nil {
		t.Error("a directory was read")
	}
	if err := WriteSeen(filepath.Join(path, "no", "directory"), Position{}); err == nil {
		t.Error("what was not kept is reported as kept")
	}
	if got := fmt.Sprint(filepath.Glob(path + "*")); got != fmt.Sprintf("[%s] <nil>", path) {
		t.Errorf("left behind: %s", got)
	}
}
