package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/arbiter-gateway/arbiter/policies"
)

// Most of what an archive may hold. Beside the policy there may be documents
// and whatever else somebody signed.
const (
	archiveMost = 2 * policies.BundleMost // bytes, unpacked, with tar's own
	membersMost = 2 * policies.FilesMost
)

// The files that an OPA bundle has beside its source.
const (
	manifestFile   = ".manifest"
	signaturesFile = ".signatures.json"
)

// refusedFiles change what a bundle means; nobody here would do as they say.
var refusedFiles = map[string]string{
	"policy.wasm":  "it is built for Wasm: build it with `opa build -t rego`",
	"plan.json":    "it is built as a plan: build it with `opa build -t rego`",
	"plan.pb":      "it is built as a plan: build it with `opa build -t rego`",
	"patch.json":   "it is a delta bundle: only whole ones are read",
	".manifest.pb": "its manifest is binary: write it as JSON",
}

// archive is what an OPA bundle holds, by clean relative path.
type archive struct {
	names []string // in their order
	files map[string][]byte
	size  int64
}

// ReadTarGz reads an OPA bundle that nobody vouches for: the operator's own
// file. Signatures in it are left aside; for those there is Verifier.
func ReadTarGz(from io.Reader) (policies.Bundle, error) {
	a, err := unpack(from)
	if err != nil {
		return policies.Bundle{}, fmt.Errorf("reading the bundle: %w", err)
	}
	if _, err := a.manifest(); err != nil {
		return policies.Bundle{}, fmt.Errorf("reading the bundle: %w", err)
	}
	b, err := a.source()
	if err != nil {
		return policies.Bundle{}, fmt.Errorf("reading the bundle: %w", err)
	}
	return b, nil
}

// unpack reads the whole archive into memory, to its last byte: a checksum
// stands at its end.
func unpack(from io.Reader) (*archive, error) {
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return nil, noArchive(err)
	}
	bounded := &limited{from: unzipped, left: archiveMost}
	members := tar.NewReader(bounded)
	out := &archive{files: map[string][]byte{}}
	for {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, noArchive(err)
		}
		if err := out.member(header, members); err != nil {
			return nil, err
		}
	}
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return nil, noArchive(err)
	}
	return out, nil
}

func noArchive(err error) error {
	if errors.Is(err, errUnpacked) {
		return err
	}
	return fmt.Errorf("this is not a whole gzip-compressed tar archive: %w", err)
}

func (a *archive) member(header *tar.Header, content io.Reader) error {
	name, err := clean(header.Name)
	if err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil
	case tar.TypeReg:
	default:
		return fmt.Errorf("%+q is a link or a special file", name)
	}
	// A sparse file is as long as its header says, whatever the archive's size.
	if header.Size < 0 || header.Size > archiveMost-a.size {
		return errUnpacked
	}
	a.size += header.Size
	if why, refused := refusedFiles[path.Base(name)]; refused {
		return fmt.Errorf("%s: %s", name, why)
	}
	if _, twice := a.files[name]; twice {
		return fmt.Errorf("%+q is there twice", name)
	}
	if len(a.names) == membersMost {
		return fmt.Errorf("there are more than %d files", membersMost)
	}
	bytes, err := io.ReadAll(content)
	if err != nil {
		return noArchive(err)
	}
	a.names, a.files[name] = append(a.names, name), bytes
	return nil
}

// clean is a member's path from the root of the bundle. OPA writes /policy.rego
// and tar ./policy.rego; everything else has to be clean as it is.
func clean(name string) (string, error) {
	rest := strings.TrimSuffix(name, "/") // a directory
	if short, found := strings.CutPrefix(rest, "./"); found {
		rest = short
	} else {
		rest = strings.TrimPrefix(rest, "/")
	}
	if rest == "" || rest == "." {
		return ".", nil
	}
	switch {
	case path.Clean("/"+rest) != "/"+rest:
		return "", fmt.Errorf("%+q is no path inside of a bundle", name)
	case strings.ContainsAny(rest, "\\:\x00"):
		return "", fmt.Errorf("%+q is a path on some machines and a name on others", name)
	case len(rest) > policies.PathMost:
		return "", fmt.Errorf("the file name %+q... has more than %d bytes", rest[:40], policies.PathMost)
	}
	return rest, nil
}

// source picks the files of the policy.
func (a *archive) source() (policies.Bundle, error) {
	found := newCollector()
	for _, name := range a.names {
		if !policies.IsSource(name) || hidden(name) {
			continue
		}
		if err := checkPath(name); err != nil {
			return policies.Bundle{}, err
		}
		if err := found.add(name, a.files[name]); err != nil {
			return policies.Bundle{}, err
		}
	}
	return found.bundle()
}

func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// limited reads no more than left bytes, and says so instead of ending.
type limited struct {
	from io.Reader
	left int64
}

var errUnpacked = fmt.Errorf("it unpacks to more than %d bytes", archiveMost)

func (l *limited) Read(into []byte) (int, error) {
	if l.left <= 0 {
		if n, err := l.from.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, errUnpacked
	}
	n, err := l.from.Read(into[:min(int64(len(into)), l.left)])
	l.left -= int64(n)
	return n, err
}
