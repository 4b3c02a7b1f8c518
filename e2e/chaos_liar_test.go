//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/testfleet"
)

// liar is a replica of the test's own on control's socket.
type liar struct {
	t      *testing.T
	stream pb.Control_RevocationsClient
	told   *pb.Revoked // the newest that control has sent
}

func (f *fleet) dialControl(t *testing.T) pb.ControlClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(f.dir, "run/xds.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewControlClient(conn)
}

// lie opens a stream that lives until the test ends.
func lie(t *testing.T, control pb.ControlClient) *liar {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	stream, err := control.Revocations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &liar{t: t, stream: stream}
}

func (l *liar) hello(in *pb.Hello) {
	_ = l.stream.Send(&pb.FromReplica{Kind: &pb.FromReplica_Hello{Hello: in}})
}

func (l *liar) confirm(in *pb.Confirm) {
	_ = l.stream.Send(&pb.FromReplica{Kind: &pb.FromReplica_Confirm{Confirm: in}})
}

func (l *liar) ping(number int64) error {
	return l.stream.Send(&pb.FromReplica{Kind: &pb.FromReplica_Ping{Ping: &pb.Ping{Number: number}}})
}

// heard reads control's messages up to one of this kind; or the stream's error.
func (l *liar) heard(pong bool) (*pb.ToReplica, error) {
	for {
		in, err := l.stream.Recv()
		if err != nil {
			return nil, err
		}
		if in.GetRevoked() != nil {
			l.told = in.GetRevoked()
		}
		if pong == (in.GetPong() != nil) {
			return in, nil
		}
	}
}

// joined says hello as an honest replica would, and reads the set.
func (l *liar) joined(name string) *liar {
	l.t.Helper()
	l.hello(&pb.Hello{Replica: name, Empty: true})
	if _, err := l.heard(false); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	return l
}

// refused wants the stream to end with a code.
func (l *liar) refused(want codes.Code) {
	l.t.Helper()
	for {
		if _, err := l.stream.Recv(); err != nil {
			if status.Code(err) != want {
				l.t.Errorf("the stream ended with %v, want %v", err, want)
			}
			return
		}
	}
}

// TestFaultReplicaThatLies: whatever somebody on control's socket says, control does
// not believe what cannot be, the other replicas notice nothing, and a delete
// waits for a liar no longer than for its lease and never counts it.
func TestFaultReplicaThatLies(t *testing.T) {
	f := startFleet(t, 2, "ARBITER_LEASE=5s")
	echo := testfleet.NewEcho(t, testfleet.Config{})
	c := &liars{fleet: f, control: f.dialControl(t), server: f.addServer(t, echo.Origin(), echo.Origin())}
	_, values := f.tokens(t, c.server, 1)
	good := f.load(t, call{path: "/servers/" + c.server + "/rpc", token: values[0], body: rpc("1", "ping", "")})
	eventually(t, 5*time.Second, "requests are allowed", func() bool { return good.newest() == 200 })
	since := time.Now()
	for _, row := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"confirms what it was not sent", c.confirmsTooMuch},
		{"has seen what does not exist", c.seenTooMuch},
		{"speaks out of turn", c.outOfTurn},
		{"never confirms", c.neverConfirms},
		{"floods", c.floods},
		{"has bad names", c.badNames},
		{"has many names", c.manyNames},
	} {
		t.Run(row.name, row.run)
	}
	for _, o := range good.stop() {
		if o.at.After(since) && o.status != 200 {
			t.Fatalf("another caller got status %d", o.status)
		}
	}
}

type liars struct {
	*fleet
	control pb.ControlClient
	server  string
}

// deleted makes a token, uses it everywhere and deletes it: both real replicas
// confirm, nobody else counts, and it is refused.
func (c *liars) deleted(t *testing.T, missing string) time.Duration {
	t.Helper()
	ids, values := c.tokens(t, c.server, 1)
	for _, p := range c.pairs {
		p.expect(t, c.server, values[0], 200)
	}
	began := time.Now()
	told := c.mustAsk(t, "DELETE", "/servers/"+c.server+"/tokens/"+ids[0], "", 200)["revocation"].(map[string]any)
	took := time.Since(began)
	if told["replicas_confirmed"] != 2.0 || missing != "" && !strings.Contains(fmt.Sprint(told["missing"]), missing) {
		t.Errorf("the delete says %v", told)
	}
	for _, p := range c.pairs {
		p.expect(t, c.server, values[0], 401)
	}
	return took
}

// quick is a delete that nobody delays, wherever an earlier liar's lease is.
func (c *liars) quick(t *testing.T) {
	t.Helper()
	eventually(t, 15*time.Second, "only the real replicas are left", func() bool {
		s, err := c.status()
		return err == nil && len(s.Replicas) == 2
	})
	if took := c.deleted(t, ""); took > 3*time.Second {
		t.Errorf("a delete took %v", took)
	}
}

func (c *liars) confirmsTooMuch(t *testing.T) {
	for _, far := range []*pb.Confirm{{Seq: 1}, {Seq: 1 << 60}, {Revision: 1 << 60}} {
		l := lie(t, c.control).joined("liar")
		far.Seq += l.told.GetSeq()
		l.confirm(far)
		l.refused(codes.InvalidArgument)
	}
	if took := c.deleted(t, "liar"); took > 7*time.Second {
		t.Errorf("a delete took %v", took)
	}
	c.quick(t)
}

func (c *liars) seenTooMuch(t *testing.T) {
	honest := lie(t, c.control).joined("liar").told
	for _, row := range []struct {
		far  *pb.Hello
		want codes.Code
	}{
		{&pb.Hello{Database: honest.GetDatabase(), Epoch: honest.GetEpoch(), Seq: 1 << 60}, codes.FailedPrecondition},
		{&pb.Hello{Database: honest.GetDatabase(), Epoch: honest.GetEpoch() + 1}, codes.FailedPrecondition},
	} {
		l := lie(t, c.control)
		row.far.Replica = "liar"
		l.hello(row.far)
		l.refused(row.want)
	}
	for _, odd := range []*pb.Hello{
		{Database: "another", Epoch: 1 << 60, Seq: 1 << 60},
		{Database: honest.GetDatabase(), Epoch: honest.GetEpoch(), Seq: -1 << 60},
		{Database: honest.GetDatabase(), Epoch: -1, Seq: 5},
	} {
		l := lie(t, c.control)
		odd.Replica = "liar"
		l.hello(odd)
		if _, err := l.heard(false); err != nil || !l.told.GetFull() && odd.GetSeq() > 0 {
			t.Errorf("hello %v: %v, %v", odd, err, l.told)
		}
	}
	c.deleted(t, "liar")
}

func (c *liars) outOfTurn(t *testing.T) {
	l := lie(t, c.control)
	_ = l.ping(1)
	l.refused(codes.InvalidArgument)
	l = lie(t, c.control)
	l.confirm(&pb.Confirm{Seq: 1})
	l.refused(codes.InvalidArgument)
	l = lie(t, c.control)
	l.hello(&pb.Hello{})
	l.refused(codes.InvalidArgument)
	for _, number := range []int64{0, -1} {
		l = lie(t, c.control).joined("liar")
		_ = l.ping(number)
		l.refused(codes.InvalidArgument)
	}
	l = lie(t, c.control).joined("liar")
	l.hello(&pb.Hello{Replica: "another"})
	l.refused(codes.InvalidArgument)
	l = lie(t, c.control).joined("liar")
	_ = l.stream.Send(&pb.FromReplica{})
	l.refused(codes.InvalidArgument)
	c.deleted(t, "liar")
}

// neverConfirms: one that keeps its lease and confirms nothing costs each delete
// one lease, not more.
func (c *liars) neverConfirms(t *testing.T) {
	l := lie(t, c.control).joined("liar")
	ctx, cancel := context.WithCancel(t.Context())
	var pinging sync.WaitGroup
	pinging.Go(func() {
		for n := int64(1); ctx.Err() == nil; n++ {
			_ = l.ping(n)
			rest(ctx, 100*time.Millisecond)
		}
	})
	for range 2 {
		if took := c.deleted(t, "liar"); took < 4*time.Second || took > 7*time.Second {
			t.Errorf("a delete took %v with a lease of 5 s", took)
		}
	}
	cancel()
	pinging.Wait()
	_ = l.stream.CloseSend()
	c.quick(t)
}

// floods: 50,000 pings at once hold nobody up.
func (c *liars) floods(t *testing.T) {
	l := lie(t, c.control).joined("liar")
	ctx, cancel := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for n := int64(1); n < 50_000 && ctx.Err() == nil; n++ {
			_ = l.ping(n)
		}
	})
	flooding.Go(func() { // and takes the answers, or the flood would stop by itself
		for ctx.Err() == nil {
			if _, err := l.stream.Recv(); err != nil {
				return
			}
		}
	})
	if took := c.deleted(t, "liar"); took > 8*time.Second {
		t.Errorf("a delete took %v", took)
	}
	cancel()
	_ = l.stream.CloseSend()
	flooding.Wait()
	c.quick(t)
}
