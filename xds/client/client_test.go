package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/arbiter-gateway/arbiter/xds/client"
)

const someType = "type.googleapis.com/arbiter.v1.Server"

// script is a server that sends what the test says and hands over what it gets.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	send chan *discoveryv3.DeltaDiscoveryResponse // nil ends the stream
	got  chan *discoveryv3.DeltaDiscoveryRequest
}

func (s *script) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		s.got <- request
		response := <-s.send
		if response == nil {
			return errors.New("the script says so")
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func run(t *testing.T, apply func(client.Update) error) *script {
	t.Helper()
	s := &script{send: make(chan *discoveryv3.DeltaDiscoveryResponse, 1), got: make(chan *discoveryv3.DeltaDiscoveryRequest)}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:control", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- client.Run(ctx, client.Config{
			Conn: conn, Node: "one", Types: []string{someType}, Apply: apply, Log: slog.New(slog.DiscardHandler),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		conn.Close()
		close(s.send) // ends the script
		server.Stop()
	})
	return s
}

func resource(name, version, typeURL string) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: version, Resource: &anypb.Any{TypeUrl: typeURL}}
}

// TestClientAnswers sends one message after the other on one stream and looks
// at what each is answered with.
func TestClientAnswers(t *testing.T) {
	var revisions []int64
	s := run(t, func(u client.Update) error {
		revisions = append(revisions, u.Revision)
		for _, r := range u.Changed {
			if r.Name == "bad" {
				return errors.New("no good")
			}
		}
		return nil
	})
	first := <-s.got
	if first.GetNode().GetId() != "one" || first.GetTypeUrl() != someType || strings.Join(first.GetResourceNamesSubscribe(), "") != "*" {
		t.Errorf("first message %v", first)
	}
	tests := []struct {
		name    string
		message *discoveryv3.DeltaDiscoveryResponse
		refusal string
	}{
		{"part of a revision", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: someType, Resources: []*discoveryv3.Resource{resource("a", "1", someType)}}, ""},
		{"the end of a revision", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: someType, SystemVersionInfo: "7", Resources: []*discoveryv3.Resource{resource("b", "7", someType)}}, ""},
		{"refused by Apply", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: someType, SystemVersionInfo: "8", Resources: []*discoveryv3.Resource{resource("bad", "8", someType)}}, "no good"},
		{"no revision", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: someType, SystemVersionInfo: "x"}, "system_version_info is not a revision"},
		{"a type that was not asked for", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: "other"}, "type was not asked for"},
		{"a resource of another type", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: someType, Resources: []*discoveryv3.Resource{resource("c", "1", "other")}}, "a resource has another type than its message"},
		{"something gone", &discoveryv3.DeltaDiscoveryResponse{TypeUrl: someType, SystemVersionInfo: "9", RemovedResources: []string{"a"}}, ""},
	}
	for _, test := range tests {
		test.message.Nonce = test.name
		s.send <- test.message
		answer := <-s.got
		if answer.GetResponseNonce() != test.name || answer.GetErrorDetail().GetMessage() != test.refusal {
			t.Errorf("%s: answered with %v", test.name, answer)
		}
	}
	if want := []int64{0, 7, 8, 0}; !slices.Equal(revisions, want) { // 9 comes after what could not be read
		t.Errorf("updates were at %v, want %v", revisions, want)
	}
	s.send <- nil // the stream ends; the next one resumes
	again := <-s.got
	if has := again.GetInitialResourceVersions(); len(has) != 1 || has["b"] != "7" {
		t.Errorf("resumes with %v", has)
	}
}

func TestRunNeedsAll(t *testing.T) {
	if err := client.Run(t.Context(), client.Config{Node: "one"}); err == nil {
		t.Error("an empty Config was accepted")
	}
}
