package extauthz

import (
	"strings"
	"sync/atomic"
	"testing"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
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
