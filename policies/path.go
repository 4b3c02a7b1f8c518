package policies

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// PathMost is how long the path of a bundle's file may be, in bytes.
const PathMost = 255

// CheckPath allows what stays inside of a directory on every system, and is
// read in one way only, by a person and by a machine. The error follows the
// file's name, or stands for itself.
func CheckPath(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	switch {
	case len(name) > PathMost:
		return fmt.Errorf("its path has more than %d bytes", PathMost)
	case strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(allowed, r) }):
		return errors.New("its path has something else in it than A to Z, a to z, 0 to 9, '/', '.', '_' and '-'")
	case !fs.ValidPath(name) || strings.Contains("/"+name, "/."):
		return errors.New("its path must be a relative path with slashes, and no part of it may begin with a dot")
	}
	return nil
}

// IsSource reports whether a file belongs to a policy. As in every OPA bundle,
// JSON and YAML of another name are not data. data.yml is taken for a mistake,
// which a Bundle with it is refused for.
func IsSource(name string) bool {
	base := path.Base(name)
	return path.Ext(base) == ".rego" || base == "data.json" || base == "data.yaml" || base == otherYAML
}

const otherYAML = "data.yml"
