package extauthz_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// envoyConn is a connection to the socket of extauthz.
func (f *fixture) envoyConn() *grpc.ClientConn {
	f.t.Helper()
	conn, err := grpc.NewClient("unix:"+f.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Envoy's own types meet Check over the socket, with many requests at once: each
// gets the answer to its own, and nobody's buffer becomes another's.
func TestCheckOverTheSocket(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	client := authv3.NewAuthorizationClient(f.envoyConn())
	once := func(id string) error {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("x-arbiter-stream", id, "x-arbiter-peer-address", "192.0.2.1:1"))
		in := rpcCall(srv.GetId(), value, fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/list","params":{"x":%q}}`, id, strings.Repeat(id, 300)))
		out, err := client.Check(ctx, in.proto())
		if err != nil {
			return err
		}
		if got := headersOf(out)["x-arbiter-request-id"]; got != id {
			return fmt.Errorf("request %s got the answer of %q", id, got)
		}
		if got := out.GetDynamicMetadata().GetFields()["id"].GetStringValue(); got != `"`+id+`"` {
			return fmt.Errorf("request %s: id %s", id, got)
		}
		return nil
	}
	var work sync.WaitGroup
	for caller := range 16 {
		work.Go(func() {
			for i := range 30 {
				if err := once(fmt.Sprintf("request-%d-%d", caller, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	f.eventually("every request has its record", func() bool {
		text := f.records.String()
		return strings.Count(text, "\n") == 16*30 && strings.Count(text, `"decision_id":"request-15-29"`) == 1
	})
}

func TestCheckRefusesWhatIsNoCheckRequest(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	conn := f.envoyConn()
	_, value := f.token(srv.GetId())
	good := realistic(srv.GetId(), value)
	for name, in := range map[string][]byte{
		"nothing": nil, "garbage": []byte("garbage"), "zeroes": make([]byte, 100), "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0x0a),
	} {
		out := opaque{}
		err := conn.Invoke(envoyMetadata(), authv3.Authorization_Check_FullMethodName, &opaque{in}, &out, grpc.ForceCodecV2(opaqueCodec{}))
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: answered %x, %v; want the error Unavailable", name, out.bytes, err)
		}
	}
	if out, err := f.server.Check(context.Background(), good); err == nil {
		t.Errorf("a request that Envoy gave no id was answered: %x", out)
	}
	twice := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-arbiter-stream", "a", "x-arbiter-stream", "b"))
	if out, err := f.server.Check(twice, good); err == nil {
		t.Errorf("a request that Envoy gave two ids was answered: %x", out)
	}
}

// Requests that wait for a decision are held in memory: so many, and no more.
func TestCheckRefusesWhenTooManyBytesWait(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	large, err := proto.Marshal(rpcCall(srv.GetId(), value, strings.Repeat("x", 4<<20-4096)).proto())
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-arbiter-stream", "a"))
	const most = (256 << 20) / (4 << 20)
	answers := make(chan error, most+1)
	f.control.mu.Lock() // nobody is told what the token is
	for range most + 1 {
		go func() {
			_, err := f.server.Check(ctx, large)
			answers <- err
		}()
	}
	if err := <-answers; status.Code(err) != codes.Unavailable { // the others wait
		t.Errorf("the first to be answered: %v, want Unavailable", err)
	}
	f.control.mu.Unlock()
	for range most {
		if err := <-answers; err != nil {
			t.Errorf("one that waited: %v", err)
		}
	}
	if _, err := f.server.Check(ctx, large); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A note is what Check wrote, byte for byte, or none.
func TestGuardRefusesNotesThatCheckDidNotWrite(t *testing.T) {
	srv := newServer()
	f := newFixture(t, srv)
	_, value := f.token(srv.GetId())
	fields := f.mustCheck(rpcCall(srv.GetId(), value, toolsList)).GetDynamicMetadata().GetFields()
	text := fields["note"].GetStringValue()
	good, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := identity.ParseServerID(srv.GetId()); err != nil || !bytes.Equal(good[2:18], id[:]) {
		t.Fatalf("the note is not in the form that this test knows: %x", good)
	}
	changed := func(at int, to byte) string {
		out := bytes.Clone(good)
		out[at] = to
		return base64.RawURLEncoding.EncodeToString(out)
	}
	ask := func(t *testing.T, note string) (passed bool) {
		g := f.dial().start(t, &structpb.Struct{Fields: map[string]*structpb.Value{
			"guard": structpb.NewStringValue("0"), "note": structpb.NewStringValue(note),
		}}, false, ":status", "200", "content-type", "application/json")
		_, err := g.stream.Recv()
		return err == nil
	}
	if !ask(t, text) {
		t.Fatal("the note as it was is refused")
	}
	for name, note := range map[string]string{
		"another version":          changed(0, 2),
		"a flag nobody knows":      changed(1, good[1]|4),
		"an address too long":      changed(58, 255),
		"an address of no length":  changed(58, 3),
		"nothing behind the fixed": base64.RawURLEncoding.EncodeToString(good[:58]),
		"half of the fixed":        base64.RawURLEncoding.EncodeToString(good[:25]),
		"one byte less":            base64.RawURLEncoding.EncodeToString(good[:len(good)-1]),
		"one byte more":            base64.RawURLEncoding.EncodeToString(append(bytes.Clone(good), 0)),
		"another alphabet":         "+" + text[1:],
		"padded":                   text + "=",
		"a line break":             text[:8] + "\n" + text[8:],
		"JSON":                     `{"s":"` + srv.GetId() + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if ask(t, note) {
				t.Errorf("%s passed", note)
			}
		})
	}
}
