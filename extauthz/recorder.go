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
)

const (
	recordQueue  = 8192                 // records
	recordMemory = 8 << 20              // and bytes of them: a batch of long names makes a long record
	recordGather = 2 * time.Millisecond // how long a record waits for others, to be written with them
	recordBatch  = 512                  // records sent at once
	recordFrame  = 1 << 20              // and bytes of them
	recordFlush  = 100 * time.Millisecond
	recordSend   = 2 * time.Second
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
	broken  atomic.Bool   // the sink could not be written
	wake    chan struct{} // there are records; one signal is enough

	mu    sync.Mutex // guards queue
	queue lines
}

// lines are records, each behind the other, each with its line break.
type lines struct {
	text []byte
	ends []int // of each in text
}

func newRecorder(sink io.Writer, control pb.ControlClient, log *slog.Logger) *recorder {
	return &recorder{sink: sink, control: control, slog: log, wake: make(chan struct{}, 1)}
}

// offer queues a record, or counts it as dropped.
func (r *recorder) offer(record *Record) bool {
	var space [1024]byte
	line := append(record.Append(space[:0]), '\n')
	waiting, ok := r.put(line)
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
func (r *recorder) put(line []byte) (waiting int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting = len(r.queue.ends)
	if waiting == recordQueue || len(r.queue.text)+len(line) > recordMemory {
		return waiting, false
	}
	r.queue.text = append(r.queue.text, line...)
	r.queue.ends = append(r.queue.ends, len(r.queue.text))
	return waiting, true
}

// take empties the queue.
func (r *recorder) take() lines {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.queue
	r.queue = lines{text: make([]byte, 0, len(taken.text)), ends: make([]int, 0, len(taken.ends))} // as many come again
	return taken
}

// run writes until ctx ends and then what is still queued.
func (r *recorder) run(ctx context.Context) error {
	batches := make(chan [][]byte, 16)
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
func (r *recorder) write(ctx context.Context, batches chan<- [][]byte) {
	ticker := time.NewTicker(recordFlush)
	defer ticker.Stop()
	gathered := time.NewTimer(recordGather)
	defer gathered.Stop()
	out := batcher{to: batches, dropped: &r.dropped}
	for {
		select {
		case <-r.wake:
			gathered.Reset(recordGather)
		case <-gathered.C:
			out.add(r.store(r.take()))
		case <-ticker.C:
			out.flush()
		case <-ctx.Done():
			r.store(r.take())
			return
		}
	}
}

// store writes lines to the sink and returns those that it took: all or none.
func (r *recorder) store(taken lines) lines {
	if len(taken.ends) == 0 {
		return lines{}
	}
	_, err := r.sink.Write(taken.text)
	if wasBroken := r.broken.Swap(err != nil); err != nil && !wasBroken {
		r.slog.Error("decision records cannot be written", "records", len(taken.ends), "error", err)
	}
	if err != nil {
		r.dropped.Add(int64(len(taken.ends)))
		return lines{}
	}
	return taken
}

func (r *recorder) send(ctx context.Context, batch [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, recordSend)
	defer cancel()
	if _, err := r.control.Record(ctx, &pb.RecordRequest{Records: batch}); err != nil {
		r.dropped.Add(int64(len(batch)))
	}
}

// batcher cuts records into batches for control.
type batcher struct {
	to      chan<- [][]byte
	dropped *atomic.Int64
	batch   [][]byte
	size    int // of batch, in bytes
}

func (b *batcher) add(taken lines) {
	from := 0
	for _, end := range taken.ends {
		b.batch = append(b.batch, taken.text[from:end-1]) // without its line break
		b.size += end - from
		from = end
		if len(b.batch) == recordBatch || b.size > recordFrame {
			b.flush()
		}
	}
}

// flush hands the batch on, or drops it: the sink is the log.
func (b *batcher) flush() {
	if len(b.batch) == 0 {
		return
	}
	select {
	case b.to <- b.batch:
	default:
		b.dropped.Add(int64(len(b.batch)))
	}
	b.batch, b.size = nil, 0
}
