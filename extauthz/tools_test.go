package extauthz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// rememberer is control as far as tools go.
type rememberer struct {
	pb.ControlClient

	mu      sync.Mutex
	asked   int
	broken  error
	changed []string // answered
	hashes  map[string]string
	leftOut uint32
}

func (r *rememberer) Tools(_ context.Context, in *pb.ToolsRequest, _ ...grpc.CallOption) (*pb.ToolsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	r.leftOut = in.GetLeftOut()
	r.hashes = map[string]string{}
	for _, tool := range in.GetTools() {
		r.hashes[tool.GetName()] = fmt.Sprintf("%x", tool.GetHash())
	}
	return &pb.ToolsResponse{Changed: r.changed}, r.broken
}

// tools are the items of a list.
func tools(texts ...string) []lists.Item {
	var out []lists.Item
	for _, text := range texts {
		var named struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal([]byte(text), &named, jsontext.AllowDuplicateNames(true)) // some are damaged, and found out
		out = append(out, lists.Item{Name: named.Name, Value: jsontext.Value(text)})
	}
	return out
}

func hashOf(t *testing.T, text string) string {
	t.Helper()
	hash, err := definitionOf(jsontext.Value(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return fmt.Sprintf("%x", hash.hash)
}

func TestDefinitionsAreComparedByWhatTheySay(t *testing.T) {
	const plain = `{"name":"echo","description":"A","inputSchema":{"type":"object","properties":{"a":{"maximum":1}}}}`
	for _, same := range []string{
		`{ "inputSchema": {"properties":{"a":{"maximum":1}},"type":"object"}, "description":"A", "name":"echo" }`,
		`{"name":"\u0065cho","description":"\u0041","inputSchema":{"type":"object","properties":{"a":{"maximum":1}}}}`,
		plain[:len(plain)-1] + `,"_meta":{"x":1},"icons":[]}`,
	} {
		if hashOf(t, same) != hashOf(t, plain) {
			t.Errorf("%s is another definition", same)
		}
	}
	for _, other := range []string{
		strings.Replace(plain, `"A"`, `"A "`, 1),
		strings.Replace(plain, `"maximum":1`, `"maximum":1.0`, 1),
		strings.Replace(plain, `"maximum"`, `"minimum"`, 1),
		plain[:len(plain)-1] + `,"title":"T"}`,
		plain[:len(plain)-1] + `,"outputSchema":{}}`,
		plain[:len(plain)-1] + `,"annotations":{"readOnlyHint":true}}`,
		plain[:len(plain)-1] + `,"description2":1,"title":null}`,
	} {
		if hashOf(t, other) == hashOf(t, plain) {
			t.Errorf("%s is the same definition", other)
		}
	}
	long := "9007199254740993"
	if hashOf(t, `{"name":"a","inputSchema":`+long+`}`) == hashOf(t, `{"name":"a","inputSchema":9007199254740992}`) {
		t.Error("two numbers became one")
	}
}

func TestDefinitionsThatCannotBeRead(t *testing.T) {
	for _, text := range []string{
		`{"name":"a","name":"b"}`, `{"name":"a","inputSchema":{"x":1,"x":2}}`,
	} {
		if _, err := definitionOf(jsontext.Value(text)); err == nil {
			t.Errorf("%.40s has a definition", text)
		}
	}
}

func TestChangedToolsAreHeldWhereTheServerSaysSo(t *testing.T) {
	control := &rememberer{changed: []string{"echo"}}
	d := newDefinitions(control)
	srv := &server{id: identity.NewServerID(), denyChanged: true}
	for range 2 { // what has changed is asked about each time: it may be approved by then
		held, err := d.see(t.Context(), srv, tools(`{"name":"echo"}`, `{"name":"add"}`))
		if err != nil || len(held) != 1 || !held["echo"] {
			t.Fatalf("held %v, %v", held, err)
		}
	}
	control.changed = nil
	for range 3 {
		if held, err := d.see(t.Context(), srv, tools(`{"name":"add"}`, `{"name":"echo"}`)); err != nil || held != nil {
			t.Fatalf("held %v, %v", held, err)
		}
	}
	if control.asked != 3 {
		t.Errorf("control was asked %d times, want twice while it had changed and once more", control.asked)
	}
	if _, err := d.see(t.Context(), srv, tools(`{"name":"add"}`, `{"name":"echo","title":"x"}`)); err != nil || control.asked != 4 {
		t.Errorf("another definition: asked %d times, %v", control.asked, err)
	}
}

func TestToolsThatNobodyCanCompareAreNotShown(t *testing.T) {
	control := &rememberer{broken: errors.New("control is away")}
	d := newDefinitions(control)
	srv := &server{id: identity.NewServerID(), denyChanged: true}
	if _, err := d.see(t.Context(), srv, tools(`{"name":"echo"}`)); err == nil {
		t.Error("a list passes although control is away")
	}
}

// TestToolsThatCannotBeCompared does not hide the others: an upstream would
// silence its alarm with one of them.
func TestToolsThatCannotBeCompared(t *testing.T) {
	long := strings.Repeat("a", toolNameMost+1)
	many := tools(`{"name":"` + long + `"}`)
	for i := range toolsMost + 1 {
		many = append(many, tools(fmt.Sprintf(`{"name":"t%d"}`, i))...)
	}
	control := &rememberer{changed: []string{"t1"}}
	held, err := newDefinitions(control).see(t.Context(), &server{denyChanged: true}, many)
	last := fmt.Sprintf("t%d", toolsMost)
	if err != nil || len(held) != 4 || !held["t1"] || !held[long] || !held[last] || control.leftOut != 3 || len(control.hashes) != toolsMost-1 {
		t.Errorf("held %d, left out %d of %d: %v", len(held), control.leftOut, len(control.hashes), err)
	}
	lax := newDefinitions(control)
	if held, err := lax.see(t.Context(), &server{}, many); err != nil || held != nil || len(lax.queue) != 1 {
		t.Errorf("a server that only raises alarms: held %v, told %d, %v", held, len(lax.queue), err)
	}
}

// TestLongDefinitionsAreComparedByHash only: their text does not travel.
func TestLongDefinitionsAreComparedByHash(t *testing.T) {
	for size, want := range map[int]bool{toolTextMost / 2: true, toolTextMost: false} {
		one, err := definitionOf(jsontext.Value(`{"name":"a","description":"` + strings.Repeat("x", size) + `"}`))
		if err != nil || (one.text != nil) != want || one.hash == [32]byte{} {
			t.Errorf("%d bytes: text %v, %v", size, one.text != nil, err)
		}
	}
}

func TestTwoToolsOfOneNameAreBoth(t *testing.T) {
	control := &rememberer{}
	d := newDefinitions(control)
	srv := &server{id: identity.NewServerID(), denyChanged: true}
	var seen []string
	for _, list := range [][]lists.Item{
		tools(`{"name":"a","title":"1"}`, `{"name":"a","title":"2"}`),
		tools(`{"name":"a","title":"1"}`, `{"name":"a","title":"3"}`),
		tools(`{"name":"a","title":"1"}`),
		tools(`{"name":"a","title":"2"}`),
	} {
		if _, err := d.see(t.Context(), srv, list); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, control.hashes["a"])
	}
	for i, one := range seen {
		for _, other := range seen[:i] {
			if one == other {
				t.Errorf("two of the lists look alike: %v", seen)
			}
		}
	}
}

func TestAlarmsAreRaisedBesideTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := &rememberer{changed: []string{"echo"}}
		d := newDefinitions(control)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.run(ctx) }()
		srv := &server{id: identity.NewServerID()}
		if held, err := d.see(ctx, srv, tools(`{"name":"echo"}`)); err != nil || held != nil {
			t.Errorf("held %v, %v", held, err)
		}
		synctest.Wait()
		if control.asked != 1 {
			t.Errorf("control was told %d times", control.asked)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAFullQueueHoldsNoAnswerUp(t *testing.T) {
	d := newDefinitions(&rememberer{})
	srv := &server{id: identity.NewServerID()}
	for i := range listsQueued + 10 {
		if _, err := d.see(t.Context(), srv, tools(fmt.Sprintf(`{"name":"t%d"}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.queue) != listsQueued {
		t.Errorf("%d lists wait", len(d.queue))
	}
}

func FuzzDefinition(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"b":1,"a":[1,2]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		hash, err := definitionOf(jsontext.Value(bytes.Clone(text)))
		if err != nil {
			return
		}
		spaced := jsontext.Value(bytes.Clone(text))
		if spaced.Indent() != nil {
			return
		}
		if other, err := definitionOf(spaced); err != nil || other.hash != hash.hash {
			t.Errorf("%q is another definition with blanks in it: %v", text, err)
		}
	})
}
