package extauthz

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

const (
	recordQueue  = 8192                 // records
	recordMemory = 8 << 20              // and bytes of them: a batch of long names makes a long record
	valuesMemory = 8 << 20              // and of argument values that wait beside them
	recordGather = 2 * time.Millisecond // how long a record waits for others, to be written with them
	recordFlush  = 100 * time.Millisecond
	recordSend   = 2 * time.Second

	// What control is sent in one recordFlush at the most.
	recordAllows   = 32
	recordRefusals = 128
	recordFrame    = 1 << 20 // bytes
)

// recorder writes records to the local sink and, in batches, to control.
//
// A record is encoded by the request that made it. Writing is another's work,
// and for all that wait at once: a wake-up and a write for each of them would
// cost more than the rest of a record.
type recorder struct {
	sink    io.Writer
	control pb.ControlClient
	slog    *slog.Logger
	dropped atomic.Int64
	unsent  atomic.Int64  // in the sink, and more than control is sent
	usual   atomic.Int64  // bytes that were taken last
	broken  atomic.Bool   // the sink could not be written
	wake    chan struct{} // there are records; one signal is enough

	mu    sync.Mutex // guards queue
	queue lines
}

// lines are records, each behind the other, each with its line break.
type lines struct {
	text   []byte
	marks  []mark // one each
	values int    // bytes of argument values
}

// mark says of a record where it ends in the text, and what it is about.
type mark struct {
	end        int
	credential string // the id, of an allowed request; "" of others
	unixMs     int64
	values     *pb.Values // for control only; nil: none
}

func newRecorder(sink io.Writer, control pb.ControlClient, log *slog.Logger) *recorder {
	return &recorder{sink: sink, control: control, slog: log, wake: make(chan struct{}, 1)}
}

// offer queues a record, or counts it as dropped. Argument values go with it to
// control, if it is sent there at all.
func (r *recorder) offer(one *record.Record, values *pb.Values) bool {
	var space [2048]byte
	line := append(one.Append(space[:0]), '\n')
	m := mark{unixMs: one.Time.UnixMilli(), values: values}
	if one.Outcome == record.Allow {
		m.credential = one.Credential
	}
	waiting, ok := r.put(line, m)
	if !ok {
		r.dropped.Add(1)
	}
	if waiting == 0 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return ok
}

// put queues a line behind the waiting ones, or says that there are too many.
func (r *recorder) put(line []byte, m mark) (waiting int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting = len(r.queue.marks)
	if waiting == recordQueue || len(r.queue.text)+len(line) > recordMemory {
		return waiting, false
	}
	r.queue.text = append(r.queue.text, line...)
	m.end = len(r.queue.text)
	if r.queue.values += len(m.values.GetArguments()); r.queue.values > valuesMemory {
		m.values = nil // the record is what counts
	}
	r.queue.marks = append(r.queue.marks, m)
	return waiting, true
}

// take empties the queue.
func (r *recorder) take() lines {
	next := lines{text: make([]byte, 0, r.usual.Load()), marks: make([]mark, 0, r.usual.Load()/256)}
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.queue
	r.queue = next
	r.usual.Store(int64(len(taken.text))) // as many come again
	return taken
}

// run writes until ctx ends and then what is still queued.
func (r *recorder) run(ctx context.Context) error {
	batches := make(chan *pb.RecordRequest, 16)
	var group errgroup.Group
	group.Go(func() error {
		for batch := range batches {
			r.send(ctx, batch)
		}
		return nil
	})
	r.write(ctx, batches)
	close(batches)
	return group.Wait()
}

// write takes records from the queue to the sink and cuts them into batches.
func (r *recorder) write(ctx context.Context, batches chan<- *pb.RecordRequest) {
	ticker := time.NewTicker(recordFlush)
	defer ticker.Stop()
	gathered := time.NewTimer(recordGather)
	defer gathered.Stop()
	out := batcher{to: batches, dropped: &r.dropped, unsent: &r.unsent}
	out.flush()
	for {
		select {
		case <-r.wake:
			gathered.Reset(recordGather)
		case <-gathered.C:
			out.add(r.store(r.take()))
		case <-ticker.C:
			out.flush()
			out.allowed, out.refused = 0, 0 // another share
		case <-ctx.Done():
			out.add(r.store(r.take()))
			out.flush()
			return
		}
	}
}

// store writes lines to the sink and returns those that it took: all or none.
func (r *recorder) store(taken lines) lines {
	if len(taken.marks) == 0 {
		return lines{}
	}
	_, err := r.sink.Write(taken.text)
	if wasBroken := r.broken.Swap(err != nil); err != nil && !wasBroken {
		r.slog.Error("decision records cannot be written", "records", len(taken.marks), "error", err)
	}
	if err != nil {
		r.dropped.Add(int64(len(taken.marks)))
		return lines{}
	}
	return taken
}

func (r *recorder) send(ctx context.Context, batch *pb.RecordRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordSend) // the last one too
	defer cancel()
	if _, err := r.control.Record(ctx, batch); err != nil {
		r.dropped.Add(int64(len(batch.GetRecords())))
	}
}

// batcher picks what control is told of, in batches. What is allowed most of
// the time is a stream that nobody reads through a database: of that control
// gets a share, and when each credential was used last. The sink has it all.
type batcher struct {
	to              chan<- *pb.RecordRequest
	dropped, unsent *atomic.Int64

	batch            *pb.RecordRequest
	size             int // of batch, in bytes
	allowed, refused int // of this share, which may take several batches
	used             map[string]int64
}

// add takes what the sink has taken.
func (b *batcher) add(taken lines) {
	from := 0
	for _, m := range taken.marks {
		line := taken.text[from : m.end-1] // without its line break
		from = m.end
		if !b.wants(m) {
			b.unsent.Add(1)
			continue
		}
		b.batch.Records = append(b.batch.Records, line)
		if m.values != nil {
			b.batch.Values = append(b.batch.Values, m.values)
		}
		if b.size += len(line) + len(m.values.GetArguments()); b.size > recordFrame {
			b.flush()
		}
	}
}

// wants reports whether there is room for a record in this share.
func (b *batcher) wants(m mark) bool {
	if m.credential == "" {
		b.refused++
		return b.refused <= recordRefusals
	}
	if b.allowed++; b.allowed <= recordAllows {
		return true
	}
	b.used[m.credential] = max(b.used[m.credential], m.unixMs)
	return false
}

// flush hands the batch on, or drops it, and begins another.
func (b *batcher) flush() {
	for credential, at := range b.used {
		b.batch.Used = append(b.batch.Used, &pb.Used{Credential: credential, UnixMs: at})
	}
	if len(b.batch.GetRecords())+len(b.batch.GetUsed()) > 0 {
		select {
		case b.to <- b.batch:
		default:
			b.dropped.Add(int64(len(b.batch.GetRecords())))
		}
	}
	b.batch, b.size, b.used = &pb.RecordRequest{}, 0, map[string]int64{}
}
