// Command noop is the stock ext_authz server that Arbiter is measured against:
// grpc-go as its documentation shows it, the generated code, and an answer that
// allows everything and says nothing.
//
// Place in the flow: it stands where extauthz stands, in the benchmark only. It
// trusts everybody, so it must never stand anywhere else.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

type server struct {
	authv3.UnimplementedAuthorizationServer
}

// Check allows.
func (server) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return &authv3.CheckResponse{
		Status:       &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}},
	}, nil
}

func main() {
	socket := flag.String("socket", "", "unix socket to listen on")
	flag.Parse()
	if err := serve(*socket); err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
		os.Exit(1)
	}
}

// serve prints the socket once it is there and answers until it is killed.
func serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	s := grpc.NewServer()
	authv3.RegisterAuthorizationServer(s, server{})
	fmt.Println(socket)
	return s.Serve(listener)
}
