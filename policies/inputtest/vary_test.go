package inputtest_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/policies/inputtest"
)

type inner struct{ Text string }

type sample struct {
	Inner  inner
	To     *inner
	Flag   bool
	Number int
	ID     [2]byte
	List   []inner
	Map    map[string]string
	JSON   jsontext.Value
	When   time.Time
	hidden int
}

func TestVaryComesToEveryField(t *testing.T) {
	full := sample{
		Inner: inner{"a"}, To: &inner{"b"}, Flag: true, Number: 1, ID: [2]byte{1}, List: []inner{{"c"}},
		Map: map[string]string{"k": "v"}, JSON: jsontext.Value(`1`), When: time.Unix(1, 0),
	}
	full.hidden = 1 // is not copied
	want := full
	want.hidden = 0
	var paths []string
	for path, varied := range inputtest.Vary(&full) {
		if reflect.DeepEqual(*varied, want) {
			t.Errorf("%s: nothing differs", path)
		}
		paths = append(paths, path)
	}
	if all := []string{
		".Inner.Text", ".To is nil", ".To.Text", ".Flag", ".Number", ".ID", ".List[0].Text", ".List is one more", ".Map", ".JSON", ".When",
	}; !slices.Equal(paths, all) {
		t.Errorf("varied %q", paths)
	}
	if full.To.Text != "b" || full.List[0].Text != "c" || full.Map["k"] != "v" {
		t.Errorf("what it was made from has changed: %+v", full)
	}
}

func TestVaryTakesNothingEmpty(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an empty field was taken for one")
		}
	}()
	for range inputtest.Vary(&inner{}) {
		t.Error("an empty field was varied")
	}
}
