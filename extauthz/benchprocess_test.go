package extauthz_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arbiter-gateway/arbiter/extauthz"
	"github.com/arbiter-gateway/arbiter/extauthz/wire"
)

// The benchmarks ask a process of its own over a unix socket, as Envoy does,
// so that what the asking costs is not counted. It is this test binary, told by
// an environment variable which arm to be.
const benchArm = "ARBITER_BENCH_ARM"

func TestMain(m *testing.M) {
	if arm := os.Getenv(benchArm); arm != "" {
		if err := serveArm(arm, os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveArm serves Check on a socket until standard input ends. To each line it
// answers with what it has used: CPU in nanoseconds, and allocations.
func serveArm(arm, socket, control string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	stop, err := start(arm, listener, control)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println("ready")
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		var used syscall.Rusage
		var memory runtime.MemStats
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		runtime.ReadMemStats(&memory)
		fmt.Println(used.Utime.Nano()+used.Stime.Nano(), memory.Mallocs)
	}
	return asked.Err()
}

func start(arm string, listener net.Listener, control string) (stop func(), err error) {
	server := grpc.NewServer()
	switch arm {
	case "check":
		return startReplica(listener, control)
	case "raw":
		server = grpc.NewServer(wire.Codec())
		wire.Register(server, raw{})
	default:
		authv3.RegisterAuthorizationServer(server, noop{})
	}
	go func() { _ = server.Serve(listener) }()
	return server.Stop, nil
}

func startReplica(listener net.Listener, control string) (stop func(), err error) {
	conn, err := grpc.NewClient("unix:"+control, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	records, err := os.Create(listener.Addr().String() + ".jsonl")
	if err != nil {
		return nil, err
	}
	server, err := extauthz.New(extauthz.Config{
		Replica: "bench", Control: conn, Listener: listener, Records: records,
		Metrics: prometheus.NewRegistry(), Slog: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	for server.Ready() != nil {
		select {
		case err := <-ended:
			cancel()
			return nil, fmt.Errorf("the replica ended before it was ready: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}, nil
}

// noop is the stock ext_authz server that allows everything.
type noop struct {
	authv3.UnimplementedAuthorizationServer
}

func (noop) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return &authv3.CheckResponse{
		Status:       &rpcstatus.Status{},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}},
	}, nil
}

// raw does the same without the generated types.
type raw struct{}

func (raw) Check(context.Context, wire.Message) (wire.Message, error) {
	return new(wire.Allowed).Append(nil)
}

// arm is one process under measurement, and the connection that asks it.
type arm struct {
	b    *testing.B
	in   io.WriteCloser
	out  *bufio.Scanner
	conn *grpc.ClientConn
}

func startArm(b *testing.B, name, control string) *arm {
	b.Helper()
	socket := filepath.Join(b.TempDir(), name)
	cmd := exec.Command(os.Args[0], socket, control)
	cmd.Env = append(os.Environ(), benchArm+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	a := &arm{b: b, in: in, out: bufio.NewScanner(out)}
	b.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("%s: %v", name, err)
		}
	})
	if !a.out.Scan() {
		b.Fatalf("%s did not start", name)
	}
	a.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = a.conn.Close() })
	return a
}

// used is what the process has used so far.
func (a *arm) used() (cpu, allocations int64) {
	a.b.Helper()
	fmt.Fprintln(a.in)
	if !a.out.Scan() {
		a.b.Fatal("the arm is gone")
	}
	if _, err := fmt.Sscan(a.out.Text(), &cpu, &allocations); err != nil {
		a.b.Fatal(err)
	}
	return cpu, allocations
}

// ask sends n requests, as many at a time as streams, and returns what the
// process used for them.
func (a *arm) ask(in []byte, n, streams int) (cpu, allocations int64) {
	a.b.Helper()
	cpuBefore, allocationsBefore := a.used()
	var left atomic.Int64
	left.Store(int64(n))
	var work sync.WaitGroup
	for range streams {
		work.Go(func() {
			for left.Add(-1) >= 0 {
				if err := a.once(in); err != nil {
					a.b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	cpu, allocations = a.used()
	return cpu - cpuBefore, allocations - allocationsBefore
}

func (a *arm) once(in []byte) error {
	out := opaque{}
	err := a.conn.Invoke(envoyMetadata(), authv3.Authorization_Check_FullMethodName, &opaque{in}, &out, grpc.ForceCodecV2(opaqueCodec{}))
	if err != nil {
		return err
	}
	if len(out.bytes) < 4 || out.bytes[1] != 0 { // status, its length: 0 is OK without a word
		return errors.New("denied")
	}
	return nil
}
