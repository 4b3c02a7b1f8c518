package extauthz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/arbiter-gateway/arbiter/extauthz/jsonrpc"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
)

// Record is the decision record of one request: one line of JSON. It holds no
// secret and no argument value.
type Record struct {
	RequestID  string    `json:"request_id"`
	Timestamp  time.Time `json:"timestamp"`
	Revision   int64     `json:"revision"` // of the settings that decided
	Replica    string    `json:"replica"`
	Outcome    string    `json:"outcome"` // allow, deny or error
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail,omitzero"`
	Status     int       `json:"status,omitzero"` // of a denial
	Server     string    `json:"server,omitzero"`
	Route      string    `json:"route,omitzero"` // rpc or mcp
	HTTPMethod string    `json:"http_method,omitzero"`
	Source     string    `json:"source,omitzero"`
	Principal  string    `json:"principal,omitzero"` // kind:subject
	Name       string    `json:"principal_name,omitzero"`
	Credential string    `json:"credential,omitzero"` // the token's id
	Calls      []Called  `json:"calls,omitzero"`
	Session    bool      `json:"session,omitzero"`
	Upstream   string    `json:"upstream,omitzero"`
	Duration   int64     `json:"duration_us"`
}

// Called is one message of a request: what it is, not what it says.
type Called struct {
	Method string `json:"method,omitzero"`
	Tool   string `json:"tool,omitzero"`
}

var errRecordsFull = errors.New("the decision log takes no record and is required")

const (
	recordQueue  = 8192
	recordBatch  = 512
	recordFlush  = 100 * time.Millisecond
	recordSend   = 2 * time.Second
	textMost     = 256 // bytes of a caller's text in a record
	outcomeAllow = "allow"
	outcomeDeny  = "deny"
	outcomeError = "error"
)

// recorder writes records to the local sink and, in batches, to control.
type recorder struct {
	sink    io.Writer
	control pb.ControlClient
	slog    *slog.Logger
	queue   chan Record
	dropped *atomic.Int64
	broken  *atomic.Bool // the sink could not be written
}

func newRecorder(sink io.Writer, control pb.ControlClient, log *slog.Logger) *recorder {
	return &recorder{sink: sink, control: control, slog: log, queue: make(chan Record, recordQueue), dropped: new(atomic.Int64), broken: new(atomic.Bool)}
}

// offer queues a record, or counts it as dropped.
func (r *recorder) offer(record Record) bool {
	select {
	case r.queue <- record:
		return true
	default:
		r.dropped.Add(1)
		return false
	}
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
	var batch [][]byte
	flush := func() {
		if len(batch) == 0 {
			return
		}
		select {
		case batches <- batch:
		default: // lossy: the sink is the log
			r.dropped.Add(int64(len(batch)))
		}
		batch = nil
	}
	for {
		select {
		case record := <-r.queue:
			if line, ok := r.line(record); ok {
				batch = append(batch, line)
			}
			if len(batch) >= recordBatch {
				flush()
			}
		case <-ticker.C:
			flush()
		case <-ctx.Done():
			for len(r.queue) > 0 {
				r.line(<-r.queue)
			}
			return
		}
	}
}

func (r *recorder) line(record Record) ([]byte, bool) {
	line, err := json.Marshal(record)
	if err == nil {
		_, err = r.sink.Write(append(line, '\n'))
	}
	if wasBroken := r.broken.Swap(err != nil); err != nil && !wasBroken {
		r.slog.Error("decision records cannot be written", "request_id", record.RequestID, "error", err)
	}
	if err != nil {
		r.dropped.Add(1)
		return nil, false
	}
	return line, true
}

func (r *recorder) send(ctx context.Context, batch [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, recordSend)
	defer cancel()
	if _, err := r.control.Record(ctx, &pb.RecordRequest{Records: batch}); err != nil {
		r.dropped.Add(int64(len(batch)))
	}
}

// record is step 7: the decision is queued before its answer leaves.
func (s *Server) record(d *decision) error {
	outcome, reason, detail, status := outcomeAllow, reasonAllowed, "", 0
	if d.denied != nil {
		outcome, reason, detail = outcomeDeny, d.denied.reason, d.denied.detail
		status = d.status
	}
	s.metrics.decided(outcome, reason, s.now().Sub(d.started))
	record := s.recordOf(d)
	record.Outcome, record.Reason, record.Detail, record.Status = outcome, string(reason), detail, status
	if kept := s.records.offer(record) && !s.records.broken.Load(); !kept && d.snap.gateway.recordsNeeded {
		return errRecordsFull
	}
	return nil
}

// recordFault records a request that nobody could decide.
func (s *Server) recordFault(d *decision, err error) {
	s.metrics.decided(outcomeError, "error", s.now().Sub(d.started))
	record := s.recordOf(d)
	record.Outcome, record.Reason, record.Detail, record.Status = outcomeError, "error", shortened(err.Error()), 503
	s.records.offer(record)
}

func (s *Server) recordOf(d *decision) Record {
	out := Record{Timestamp: d.started.UTC(), Replica: s.cfg.Replica, Duration: s.now().Sub(d.started).Microseconds()}
	if d.snap != nil {
		out.Revision = d.snap.Revision
	}
	if d.req != nil {
		out.RequestID, out.HTTPMethod, out.Source = d.req.id, knownMethod(d.req.method), d.req.peer
		out.Server, out.Route = d.req.server.String(), "mcp"
		if d.req.transport == jsonrpc.RPC {
			out.Route = "rpc"
		}
	}
	if d.who.ID != "" {
		out.Credential, out.Name = d.who.ID, d.who.Principal.Name
		out.Principal = fmt.Sprintf("%s:%s", d.who.Principal.Kind, d.who.Principal.Subject)
	}
	for _, m := range d.call.messages {
		called := Called{Method: shortened(m.Method)}
		if m.Method == "tools/call" {
			called.Tool = shortened(m.Selector)
		}
		out.Calls = append(out.Calls, called)
	}
	out.Session = d.session != nil
	if d.allowed {
		out.Upstream = d.route.address.String()
	}
	return out
}

// knownMethod keeps a caller from writing into the log what it likes.
func knownMethod(method string) string {
	switch method {
	case "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH", "TRACE":
		return method
	}
	return "other"
}

func shortened(text string) string {
	if len(text) <= textMost {
		return text
	}
	return text[:textMost] + "…"
}
