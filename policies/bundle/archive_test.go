package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/policies"
	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

const rego = "package policy\n\nallow if input.action == \"call\"\n"

// entry is one member of an archive.
type entry struct {
	name, content string
	kind          byte // tar.TypeReg without
	link          string
}

func tarred(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: kind, Linkname: e.link, Size: int64(len(e.content)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tarGz(t testing.TB, entries ...entry) []byte { return zipped(t, tarred(t, entries...)) }

func names(b policies.Bundle) []string { return slices.Sorted(maps.Keys(b.Files)) }

func TestReadTarGz(t *testing.T) {
	for _, test := range []struct {
		name    string
		entries []entry
		want    []string
	}{
		{"as tar writes it", []entry{{name: "./", kind: tar.TypeDir}, {name: "./policy.rego", content: rego}, {name: "./team/", kind: tar.TypeDir}, {name: "./team/data.yaml", content: "a: 1"}}, []string{"policy.rego", "team/data.yaml"}},
		{"as OPA writes it", []entry{{name: "/data.json", content: "{}"}, {name: "/policy.rego", content: rego}, {name: "/.manifest", content: `{"revision":"r1","roots":[""],"rego_version":1}`}}, []string{"data.json", "policy.rego"}},
		{"with tests", []entry{{name: "policy.rego", content: rego}, {name: "policy_test.rego", content: "package policy_test"}}, []string{"policy.rego", "policy_test.rego"}},
		{"with what is no source", []entry{{name: "policy.rego", content: rego}, {name: "LÎSEZ MOI", content: "x"}, {name: "other.json", content: "{"}, {name: ".git/x.rego", content: "x"}, {name: ".signatures.json", content: "x"}}, []string{"policy.rego"}},
		{"a root that is policy", []entry{{name: "policy.rego", content: rego}, {name: ".manifest", content: `{"roots":["x","/policy/"],"metadata":{"by":"me"}}`}}, []string{"policy.rego"}},
		{"as git writes it", []entry{{name: "policy.rego", content: rego}}, []string{"policy.rego"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := bundle.ReadTarGz(bytes.NewReader(tarGz(t, test.entries...)))
			if err != nil || !slices.Equal(names(got), test.want) || string(got.Files["policy.rego"]) != rego {
				t.Errorf("read %v, %v; want %v", names(got), err, test.want)
			}
		})
	}
}

func TestReadTarGzRejects(t *testing.T) {
	good := entry{name: "policy.rego", content: rego}
	manifest := func(content string) []entry { return []entry{good, {name: ".manifest", content: content}} }
	for _, test := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"nothing", nil, "there is no Rego"},
		{"only data", []entry{{name: "data.json", content: "{}"}}, "there is no Rego"},
		{"a path out of it", []entry{good, {name: "../policy.rego", content: rego}}, "no path inside"},
		{"a path out of it and back", []entry{good, {name: "a/../../b/policy.rego", content: rego}}, "no path inside"},
		{"a path out of it below the root", []entry{good, {name: "/../etc/policy.rego", content: rego}}, "no path inside"},
		{"a path to itself", []entry{good, {name: "a/./policy.rego", content: rego}}, "no path inside"},
		{"an absolute path of two slashes", []entry{good, {name: "//etc/policy.rego", content: rego}}, "no path inside"},
		{"a backslash", []entry{good, {name: `..\policy.rego`, content: rego}}, "a path on some machines"},
		{"a drive", []entry{good, {name: `C:policy.rego`, content: rego}}, "a path on some machines"},
		{"a file twice", []entry{good, good}, `"policy.rego" is there twice`},
		{"a file twice by two names", []entry{good, {name: "/policy.rego", content: rego}}, `"policy.rego" is there twice`},
		{"a document twice", []entry{good, {name: "README", content: "a"}, {name: "./README", content: "b"}}, `"README" is there twice`},
		{"a symbolic link", []entry{good, {name: "more.rego", kind: tar.TypeSymlink, link: "/etc/passwd"}}, "a link or a special file"},
		{"a hard link", []entry{good, {name: "more.rego", kind: tar.TypeLink, link: "policy.rego"}}, "a link or a special file"},
		{"a device", []entry{good, {name: "more.rego", kind: tar.TypeChar}}, "a link or a special file"},
		{"a pipe", []entry{good, {name: "more.rego", kind: tar.TypeFifo}}, "a link or a special file"},
		{"a name beyond ASCII", []entry{good, {name: "pоlicy.rego", content: rego}}, `file name "p\u043elicy.rego"`},
		{"a name of two directions", []entry{good, {name: "a\u202eogerx.rego", content: rego}}, `\u202e`},
		{"a name with a line break", []entry{good, {name: "a\nb.rego", content: rego}}, `"a\nb.rego"`},
		{"a name with a quote", []entry{good, {name: `a".rego`, content: rego}}, `file name "a\".rego"`},
		{"a name with a space", []entry{good, {name: "a b/data.json", content: "{}"}}, `"a b/data.json"`},
		{"a long name", []entry{good, {name: strings.Repeat("a", 300) + ".rego", content: rego}}, "more than 255 bytes"},
		{"Wasm", []entry{good, {name: "/policy.wasm", content: "\x00asm"}}, "built for Wasm"},
		{"a plan", []entry{good, {name: "plan.json", content: "{}"}}, "built as a plan"},
		{"a delta bundle", []entry{good, {name: "patch.json", content: "{}"}}, "delta bundle"},
		{"a binary manifest", []entry{good, {name: ".manifest.pb", content: "x"}}, "manifest is binary"},
		{"roots without policy", manifest(`{"roots":["other"]}`), "its roots (other) leave out policy"},
		{"roots with part of policy", manifest(`{"roots":["policy/more","policyx"]}`), "leave out policy"},
		{"no roots", manifest(`{"roots":[]}`), "leave out policy"},
		{"Wasm that answers", manifest(`{"wasm":[{"entrypoint":"policy/allow","module":"x"}]}`), "built for Wasm"},
		{"Rego v0", manifest(`{"rego_version":0}`), "rego_version is not 1"},
		{"Rego v0 in one file", manifest(`{"file_rego_versions":{"*/policy.rego":0}}`), "file_rego_versions"},
		{"a manifest that is none", manifest(`[]`), ".manifest"},
		{"a manifest's key twice", manifest(`{"roots":["policy"],"roots":[""]}`), "duplicate"},
		{"a version that is a text", manifest(`{"metadata":{"version":"42"}}`), "metadata.version"},
		{"a version that is no integer", manifest(`{"metadata":{"version":4.2e1}}`), "metadata.version"},
		{"a version of nothing", manifest(`{"metadata":{"version":0}}`), "metadata.version"},
		{"a version below", manifest(`{"metadata":{"version":-1}}`), "metadata.version"},
		{"a version too large", manifest(`{"metadata":{"version":9223372036854775808}}`), "metadata.version"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := bundle.ReadTarGz(bytes.NewReader(tarGz(t, test.entries...)))
			if err == nil || !strings.Contains(err.Error(), test.want) || got.Files != nil {
				t.Errorf("read %v, %v; want %q", names(got), err, test.want)
			}
		})
	}
}

func TestReadTarGzRejectsWhatIsNone(t *testing.T) {
	whole := tarGz(t, entry{name: "policy.rego", content: rego})
	broken := bytes.Clone(whole)
	broken[len(broken)-6] ^= 1 // in the checksum
	for name, content := range map[string][]byte{
		"nothing":             nil,
		"a web page":          []byte("<!doctype html><title>Sign in</title>"),
		"not compressed":      tarred(t, entry{name: "policy.rego", content: rego}),
		"compressed, no tar":  zipped(t, []byte(strings.Repeat("x", 2000))),
		"cut off":             whole[:len(whole)-10],
		"cut off at the end":  whole[:len(whole)-1],
		"a wrong checksum":    broken,
		"something behind it": append(bytes.Clone(whole), "more"...),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := bundle.ReadTarGz(bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), "not a whole gzip-compressed tar archive") {
				t.Errorf("read %v, %v", names(got), err)
			}
		})
	}
}

// counting is a source that says how much of it was read.
type counting struct {
	from io.Reader
	read int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += n
	return n, err
}

func TestReadTarGzRejectsBombs(t *testing.T) {
	zeros := strings.Repeat("\x00", policies.BundleMost)
	many := []entry{{name: "policy.rego", content: rego}}
	for i := range policies.FilesMost {
		many = append(many, entry{name: fmt.Sprintf("a%d.rego", i), content: rego})
	}
	documents := []entry{{name: "policy.rego", content: rego}}
	for i := range 2 * policies.FilesMost {
		documents = append(documents, entry{name: fmt.Sprintf("a%d.md", i)})
	}
	sparse := tarred(t, entry{name: "policy.rego", content: rego}, entry{name: "b.rego", content: "x"})
	at := bytes.Index(sparse, []byte("b.rego"))
	copy(sparse[at+124:], "77777777777\x00") // its size, 8 GiB, with a checksum to match
	resum(sparse[at : at+512])
	for _, test := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"a file of zeros", tarGz(t, entry{name: "policy.rego", content: zeros + "x"}), "more than 8388608 bytes"},
		{"documents of zeros", tarGz(t, entry{name: "policy.rego", content: rego}, entry{name: "a", content: zeros}, entry{name: "b", content: zeros}), "unpacks to more than"},
		{"many files", tarGz(t, many...), "more than 1000 files"},
		{"many documents", tarGz(t, documents...), "more than 2000 files"},
		{"a size that is a lie", zipped(t, sparse), "unpacks to more than"},
		{"zeros behind its end", zipped(t, append(tarred(t, entry{name: "policy.rego", content: rego}), zeros+zeros...)), "unpacks to more than"},
		{"a stream behind the stream", append(tarGz(t, entry{name: "policy.rego", content: rego}), zipped(t, []byte(zeros+zeros))...), "unpacks to more than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := bundle.ReadTarGz(bytes.NewReader(test.content)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("read %v, %v; want %q", len(got.Files), err, test.want)
			}
		})
	}
	t.Run("it stops reading", func(t *testing.T) {
		noise := rand.NewChaCha8([32]byte{1})
		var raw bytes.Buffer
		if _, err := io.CopyN(&raw, noise, 4*policies.BundleMost); err != nil {
			t.Fatal(err)
		}
		content := tarGz(t, entry{name: "a", content: raw.String()}, entry{name: "policy.rego", content: rego})
		from := &counting{from: bytes.NewReader(content)}
		if _, err := bundle.ReadTarGz(from); err == nil || from.read > len(content)/2 {
			t.Errorf("read %d of %d bytes, %v", from.read, len(content), err)
		}
	})
}

// sparse is a member of nothing but a hole, in the form of PAX, which takes
// three blocks however large it is. Go's tar reads it, and writes none.
func sparse(t *testing.T, name string, size int) []byte {
	t.Helper()
	record := func(key, value string) string {
		rest := " " + key + "=" + value + "\n"
		n := len(rest) + 2
		return fmt.Sprint(n) + rest
	}
	records := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.name", name) + record("GNU.sparse.realsize", fmt.Sprint(size))
	plain := tarred(t, entry{name: "pax", content: records}, entry{name: name, content: "0\n" + strings.Repeat("\x00", 510)})
	plain[156] = tar.TypeXHeader
	resum(plain[:512])
	return plain[:4*512]
}

func TestReadTarGzRejectsSparseBombs(t *testing.T) {
	half := policies.BundleMost * 3 / 4
	documents := func(n int) []byte {
		var raw []byte
		for i := range n {
			raw = append(raw, sparse(t, fmt.Sprintf("a%d", i), half)...)
		}
		return zipped(t, append(raw, tarred(t, entry{name: "policy.rego", content: rego})...))
	}
	if got, err := bundle.ReadTarGz(bytes.NewReader(documents(2))); err != nil || len(got.Files) != 1 {
		t.Errorf("two of them: %v, %v", names(got), err)
	}
	if _, err := bundle.ReadTarGz(bytes.NewReader(documents(3))); err == nil || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Errorf("three of them: %v", err)
	}
}

// resum writes the checksum of a tar header.
func resum(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
}

func TestReadTarGzErrEmpty(t *testing.T) {
	if _, err := bundle.ReadTarGz(bytes.NewReader(tarGz(t))); !errors.Is(err, bundle.ErrEmpty) {
		t.Error(err)
	}
}

// What tar itself makes of bytes is Go's to fuzz; here members are drawn.
func FuzzReadTarGz(f *testing.F) {
	f.Add("policy.rego", "./a/data.json", byte(tar.TypeReg), []byte("{}"), []byte(`{"roots":[""],"metadata":{"version":1}}`))
	f.Add("/policy.rego", "../x.rego", byte(tar.TypeSymlink), []byte(rego), []byte(`{"roots":["x"],"rego_version":0}`))
	f.Add("a/..\\b.rego", "/a/./b/", byte(tar.TypeDir), []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, one, two string, kind byte, content, manifest []byte) {
		var raw bytes.Buffer
		w := tar.NewWriter(&raw)
		for _, e := range []entry{
			{name: one, content: string(content)}, {name: two, content: "", kind: kind, link: one}, {name: ".manifest", content: string(manifest)},
		} {
			if w.WriteHeader(&tar.Header{Name: e.name, Typeflag: max(e.kind, tar.TypeReg), Linkname: e.link, Size: int64(len(e.content))}) != nil {
				return // tar has no such name
			}
			if _, err := io.WriteString(w, e.content); err != nil {
				return
			}
		}
		if w.Close() != nil {
			return
		}
		got, err := bundle.ReadTarGz(bytes.NewReader(zipped(t, raw.Bytes())))
		if err != nil {
			if got.Files != nil {
				t.Error("a bundle beside an error")
			}
			return
		}
		for name := range got.Files {
			if !fs.ValidPath(name) || strings.ContainsFunc(name, func(r rune) bool { return r < '-' || r > 'z' }) {
				t.Errorf("it has %q", name)
			}
		}
	})
}
