package extauthz

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// Control is sent one share in a recordFlush, into however many frames its
// records have to be cut.
func TestLongRecordsGetNoLargerShare(t *testing.T) {
	const each, length = 3 * recordRefusals, 50_000
	var taken lines
	for i := range each {
		for _, credential := range []string{"", "token"} {
			taken.text = append(taken.text, strings.Repeat("x", length)+"\n"...)
			taken.marks = append(taken.marks, mark{end: len(taken.text), credential: credential, unixMs: int64(i)})
		}
	}
	batches := make(chan *pb.RecordRequest, 1000)
	var dropped, unsent atomic.Int64
	out := batcher{to: batches, dropped: &dropped, unsent: &unsent}
	out.flush()
	out.add(taken)
	out.flush()
	close(batches)
	sent, used := int64(0), int64(0)
	for batch := range batches {
		sent += int64(len(batch.GetRecords()))
		for _, u := range batch.GetUsed() {
			used = max(used, u.GetUnixMs())
		}
	}
	if sent != recordAllows+recordRefusals || sent+unsent.Load() != 2*each || dropped.Load() != 0 || used != each-1 {
		t.Errorf("%d sent, %d not, %d dropped; last used at %d", sent, unsent.Load(), dropped.Load(), used)
	}
}

// Argument values leave with their records: those that control is not sent take
// theirs along, and many of them count towards a frame.
func TestValuesGoWithTheirRecords(t *testing.T) {
	const each = 3 * recordRefusals
	arguments := []byte(`["` + strings.Repeat("x", 16<<10) + `"]`)
	var taken lines
	for i := range each {
		taken.text = append(taken.text, "record\n"...)
		taken.marks = append(taken.marks, mark{end: len(taken.text), values: &pb.Values{DecisionId: strconv.Itoa(i), Arguments: arguments}})
	}
	batches := make(chan *pb.RecordRequest, 1000)
	var dropped, unsent atomic.Int64
	out := batcher{to: batches, dropped: &dropped, unsent: &unsent}
	out.flush()
	out.add(taken)
	out.flush()
	close(batches)
	sent, count := 0, 0
	for batch := range batches {
		if size := len(batch.GetValues()) * len(arguments); len(batch.GetValues()) != len(batch.GetRecords()) || size > recordFrame+len(arguments) {
			t.Errorf("%d records with %d values of %d bytes", len(batch.GetRecords()), len(batch.GetValues()), size)
		}
		for _, v := range batch.GetValues() {
			if v.GetDecisionId() != strconv.Itoa(sent) {
				t.Errorf("values %d are those of %s", sent, v.GetDecisionId())
			}
			sent++
		}
		count++
	}
	if sent != recordRefusals || count < 2 {
		t.Errorf("%d values in %d batches", sent, count)
	}
}

// Values that wait are bounded; the records beside them stay.
func TestValuesThatWaitAreBounded(t *testing.T) {
	r := newRecorder(nil, nil, nil)
	values := &pb.Values{Arguments: make([]byte, record.MostValues)}
	const n = 2 * valuesMemory / record.MostValues
	for range n {
		if !r.offer(&record.Record{ID: "r"}, values) {
			t.Fatal("a record is refused for its values")
		}
	}
	kept := 0
	taken := r.take()
	for _, m := range taken.marks {
		kept += len(m.values.GetArguments())
	}
	if len(taken.marks) != n || kept > valuesMemory || kept < valuesMemory/2 {
		t.Errorf("%d records, %d bytes of values", len(taken.marks), kept)
	}
	if r.offer(&record.Record{ID: "r"}, values); r.take().marks[0].values == nil {
		t.Error("what was taken still counts")
	}
}
