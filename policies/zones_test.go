package policies

import (
	"go/build"
	"slices"
	"testing"
)

// TestTimeZonesAreInTheProgram: a machine without zones would refuse office
// hours. No test can tell on a machine that has them, so this one looks at what
// is imported.
func TestTimeZonesAreInTheProgram(t *testing.T) {
	here, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(here.Imports, "time/tzdata") {
		t.Error("time/tzdata is not imported")
	}
}
