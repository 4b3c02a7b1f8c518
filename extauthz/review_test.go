package extauthz_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/extauthz"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
)

// An answer to a request that the process before a restart allowed meets one
// that has not heard control yet: it must be refused, not followed blindly.
func TestGuardBeforeControlIsHeardRefuses(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	allowed := f.mustCheck(mcpCall(srv.GetId(), value, initialize))

	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "extauthz.sock"))
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := grpc.NewClient("unix:"+filepath.Join(dir, "nobody.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	fresh, err := extauthz.New(extauthz.Config{
		Replica: "fresh", Control: nobody, Listener: listener, Records: new(syncBuffer), Metrics: prometheus.NewRegistry(), Slog: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fresh.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	if out, err := ask(ctx, fresh, mcpCall(srv.GetId(), value, initialize).proto()); err == nil {
		t.Errorf("Check decided without control: %v", out)
	}
	f.socket = filepath.Join(dir, "extauthz.sock")
	for _, media := range []string{"application/json", "text/event-stream"} {
		g := f.dial().start(t, allowed.GetDynamicMetadata(), false, ":status", "200", "content-type", media)
		if got := g.recv().GetImmediateResponse(); got.GetStatus().GetCode() != 503 {
			t.Errorf("%s: answered %v, want 503", media, got)
		}
	}
}

func TestGuardRefusesAnswersWithoutANote(t *testing.T) {
	f := newFixture(t, newServer())
	for name, metadata := range map[string]*structpb.Struct{
		"no metadata": nil,
		"no note":     {Fields: map[string]*structpb.Value{"guard": structpb.NewStringValue("0")}},
		"garbage":     {Fields: map[string]*structpb.Value{"note": structpb.NewStringValue("{")}},
	} {
		t.Run(name, func(t *testing.T) {
			g := f.dial().start(t, metadata, false, ":status", "200", "content-type", "text/event-stream")
			if out, err := g.stream.Recv(); err == nil {
				t.Errorf("passed: %v", out)
			}
		})
	}
}

// start is answer without a Check: metadata as somebody made it up.
func (e *envoySide) start(t *testing.T, metadata *structpb.Struct, end bool, header ...string) *guarded {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	stream, err := e.client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lines := &corev3.HeaderMap{}
	for i := 0; i < len(header); i += 2 {
		lines.Headers = append(lines.Headers, &corev3.HeaderValue{Key: header[i], RawValue: []byte(header[i+1])})
	}
	g := &guarded{t, stream}
	in := &procv3.ProcessingRequest{Request: &procv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &procv3.HttpHeaders{Headers: lines, EndOfStream: end},
	}}
	if metadata != nil {
		in.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.filters.http.ext_authz": metadata}}
	}
	g.send(in)
	return g
}

// What ends while Check waits, for a name or for headers, ends this request.
func TestCheckDoesNotAllowWhatEndedMeanwhile(t *testing.T) {
	for name, end := range map[string]func(*fixture, *pb.Server, string){
		"token deleted": func(f *fixture, _ *pb.Server, id string) {
			if got := f.revoke(revocation.KindAccessToken, id); got.Confirmed != 1 {
				f.t.Errorf("revoked: %+v", got)
			}
		},
		"server disabled": func(f *fixture, srv *pb.Server, _ string) {
			srv.Enabled = false
			f.change(srv)
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(func(s *pb.Server) { s.HeadersRevision = 1 })
			f := newFixture(t, srv)
			f.control.headers[srv.GetId()] = &pb.UpstreamHeadersResponse{HeadersRevision: 1}
			f.control.held = make(chan struct{})
			id, value := f.token(srv.GetId())
			answered := make(chan int, 1)
			go func() {
				out, err := f.check(rpcCall(srv.GetId(), value, toolsList))
				if err != nil {
					answered <- 503
					return
				}
				status, _ := outcome(out)
				answered <- status
			}()
			f.eventually("Check waits for headers", func() bool {
				f.control.mu.Lock()
				defer f.control.mu.Unlock()
				return f.control.waiting
			})
			end(f, srv, id)
			close(f.control.held)
			if got := <-answered; got == 0 {
				t.Error("allowed after the end was confirmed")
			}
		})
	}
}

func TestServerThatCannotBeReadAcceptsNothingAndHoldsNothingUp(t *testing.T) {
	good, bad := newServer(), newServer()
	f := newFixture(t, good, bad)
	_, ofGood := f.token(good.GetId())
	_, ofBad := f.token(bad.GetId())
	bad.MaxBody = 0
	good.LiteralDenials = true
	f.push(nil, nil, []*pb.Server{bad, good})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.xds.Applied(ctx, f.revision.Load()); err == nil || !strings.Contains(err.Error(), bad.GetId()) {
		t.Errorf("the refusal says %v", err)
	}
	if status, _ := outcome(f.mustCheck(rpcCall(bad.GetId(), ofBad, toolsList))); status != 403 {
		t.Errorf("the wrong server: status %d, want 403", status)
	}
	if status, _ := outcome(f.mustCheck(rpcCall(good.GetId(), ofGood, toolsList))); status != 0 {
		t.Errorf("the one beside it: status %d", status)
	}
	bad.MaxBody = 1000
	f.change(bad)
	if status, _ := outcome(f.mustCheck(rpcCall(bad.GetId(), ofBad, toolsList))); status != 0 {
		t.Errorf("mended: status %d", status)
	}
}

func TestRecordsHoldNoCallersText(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	long := strings.Repeat("x", 50_000)
	f.mustCheck(request{method: long, path: "/servers/" + srv.GetId() + "/rpc"})
	f.mustCheck(rpcCall(srv.GetId(), value, `{"jsonrpc":"2.0","id":"secret-id","method":"tools/call","params":{"name":"`+long+`","arguments":{"a":"secret-argument"}}}`))
	f.eventually("two records", func() bool { return strings.Count(f.records.String(), "\n") == 2 })
	for line := range strings.SplitSeq(strings.TrimSpace(f.records.String()), "\n") {
		if len(line) > 2000 {
			t.Errorf("a record has %d bytes", len(line))
		}
		if strings.Contains(line, "secret") || strings.Contains(line, value) {
			t.Errorf("a record holds what it must not: %s", line)
		}
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil || record["decision_id"] != "request-1" {
			t.Errorf("record %s: %v", line, err)
		}
	}
}

// With a decision log that is required, no record is no allow.
func TestRequiredDecisionLogThatCannotBeWritten(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	in := rpcCall(srv.GetId(), value, toolsList)
	settings := gateway()
	settings.DecisionLogRequired = true
	f.push(settings, nil, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.xds.Applied(ctx, f.revision.Load()); err != nil {
		t.Fatal(err)
	}
	f.mustCheck(in)
	f.records.fail(errors.New("disk full"))
	f.eventually("requests are refused", func() bool { _, err := f.check(in); return err != nil })
	f.records.fail(nil)
	f.eventually("requests pass again", func() bool { _, err := f.check(in); return err == nil })
}
