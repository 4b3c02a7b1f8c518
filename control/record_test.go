package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/mask"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// Argument values are kept beside their own record, if it is of the server that
// they say and that server records them.
func TestRecordsWithArgumentValues(t *testing.T) {
	f := newFixture(t, nil)
	recording, plain := newServer("recording"), newServer("plain")
	recording.RecordArguments = &store.RecordArguments{Mask: []string{"/password"}, Keep: time.Hour}
	on, err1 := f.store.CreateServer(t.Context(), recording, nil)
	off, err2 := f.store.CreateServer(t.Context(), plain, nil)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	rules := mask.ID([]string{"/password"})
	values := func(server store.Server, arguments, maskID string) *pb.Values {
		return &pb.Values{ServerId: server.ID.String(), Arguments: []byte(arguments), Mask: maskID}
	}
	for i, tt := range []struct {
		name   string
		server store.Server
		values *pb.Values
		want   string
	}{
		{"kept", on, values(on, `[{"a":1}]`, rules), `[{"a":1}]`},
		{"none", on, nil, ""},
		{"not recorded by this server", off, values(off, `[1]`, rules), ""},
		{"of another server", off, values(on, `[1]`, rules), ""},
		{"said to be of another server", on, values(off, `[1]`, rules), ""},
		{"by other rules", on, values(on, `[1]`, mask.ID(nil)), ""},
		{"by no rules", on, values(on, `[1]`, ""), ""},
		{"not JSON", on, values(on, `[1`, rules), ""},
		{"not a list", on, values(on, `{"a":1}`, rules), ""},
		{"more than JSON", on, values(on, `[1] [2]`, rules), ""},
		{"too long", on, values(on, `["`+strings.Repeat("x", record.MostValues)+`"]`, rules), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprint("r", i)
			line := fmt.Appendf(nil, `{"decision_id":%q,"timestamp":"2026-11-21T10:00:00Z","outcome":"deny","input":{"server":{"id":%q}}}`, id, tt.server.ID)
			in := &pb.RecordRequest{Records: [][]byte{line}}
			if tt.values != nil {
				tt.values.DecisionId = id
				in.Values = []*pb.Values{tt.values, values(on, `["of nobody"]`, rules)}
			}
			if _, err := f.control.Record(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			got, err := f.store.Decision(t.Context(), id)
			if err != nil || string(got.JSON) != string(line) || string(got.Arguments) != tt.want || got.Server != tt.server.ID.String() {
				t.Errorf("kept %+v, %v, want the values %s", got, err, tt.want)
			}
		})
	}
}

func TestRecordRefuses(t *testing.T) {
	f := newFixture(t, nil)
	for name, line := range map[string]string{
		"no id": `{"timestamp":"2026-11-21T10:00:00Z"}`, "no time": `{"decision_id":"a","timestamp":"soon"}`,
		"an earlier release's": `{"request_id":"a"}`, "two": `{"decision_id":"a"}{"decision_id":"b"}`,
		"too long": `{"decision_id":"a","x":"` + strings.Repeat("x", record.Most) + `"}`,
	} {
		_, err := f.control.Record(t.Context(), &pb.RecordRequest{Records: [][]byte{[]byte(line)}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
