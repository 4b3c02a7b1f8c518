// Command opa is an ext_authz server that embeds stock OPA as its documentation
// shows it: grpc-go, the generated code, the body read by encoding/json, the
// input as Go maps, one prepared query. Arbiter with the same policy is measured
// against it.
//
// Place in the flow: it stands where extauthz stands, in the benchmark only. It
// looks credentials up in a table that it is given, knows no sessions, no
// revocation and no records, and so must never stand anywhere else.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// table is who may call what is served: objects as the policy sees them.
type table struct {
	Tokens  map[string]map[string]any `json:"tokens"`  // principals by bearer token
	Servers map[string]map[string]any `json:"servers"` // by id
}

type server struct {
	authv3.UnimplementedAuthorizationServer
	query rego.PreparedEvalQuery
	known table
}

// Check asks the policy.
func (s *server) Check(ctx context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	input, err := s.input(in)
	if err != nil {
		return nil, err
	}
	found, err := s.query.Eval(ctx, rego.EvalInput(input))
	if err != nil {
		return nil, err
	}
	if !allowed(found) {
		return &authv3.CheckResponse{Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)}}, nil
	}
	return &authv3.CheckResponse{
		Status:       &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}},
	}, nil
}

func allowed(found rego.ResultSet) bool {
	if len(found) != 1 {
		return false
	}
	decision, _ := found[0].Bindings["decision"].(map[string]any)
	denials, _ := decision["deny"].([]any)
	return decision["allow"] == true && len(denials) == 0
}

func (s *server) input(in *authv3.CheckRequest) (map[string]any, error) {
	request := in.GetAttributes().GetRequest().GetHttp()
	var message struct {
		Method string `json:"method"`
		Params struct {
			Name      string `json:"name"`
			Arguments any    `json:"arguments"`
		} `json:"params"`
	}
	if err := json.Unmarshal(request.GetRawBody(), &message); err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	var bearer string
	for _, line := range request.GetHeaderMap().GetHeaders() {
		if line.GetKey() == "authorization" {
			bearer = strings.TrimPrefix(string(line.GetRawValue()), "Bearer ")
		}
	}
	parts := strings.Split(request.GetPath(), "/") // /servers/ID/rpc
	if len(parts) != 4 || s.known.Tokens[bearer] == nil || s.known.Servers[parts[2]] == nil {
		return nil, fmt.Errorf("nobody is known on %s by this token", request.GetPath())
	}
	return map[string]any{
		"principal": s.known.Tokens[bearer], "server": s.known.Servers[parts[2]],
		"transport": parts[3], "action": "call",
		"call":    map[string]any{"method": message.Method, "tool": message.Params.Name, "arguments": message.Params.Arguments},
		"request": map[string]any{"method": request.GetMethod(), "path": request.GetPath(), "host": request.GetHost()},
		"time":    time.Now().UnixNano(),
	}, nil
}

func main() {
	socket := flag.String("socket", "", "unix socket to listen on")
	dir := flag.String("policy", "", "`directory` of .rego files and data.json")
	known := flag.String("table", "", "JSON `file` of principals and servers")
	flag.Parse()
	if err := serve(*socket, *dir, *known); err != nil {
		fmt.Fprintln(os.Stderr, "opa:", err)
		os.Exit(1)
	}
}

// prepare reads the policy and the table.
func prepare(ctx context.Context, dir, known string) (*server, error) {
	s, data := &server{}, map[string]any{}
	if err := readJSON(known, &s.known); err != nil {
		return nil, err
	}
	if err := readJSON(filepath.Join(dir, "data.json"), &data); err != nil {
		return nil, err
	}
	options := []func(*rego.Rego){rego.Query("decision = data.arbiter.decision"), rego.Store(inmem.NewFromObject(data))}
	files, err := filepath.Glob(filepath.Join(dir, "*.rego"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		options = append(options, rego.Module(file, string(text)))
	}
	s.query, err = rego.New(options...).PrepareForEval(ctx)
	return s, err
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// serve prints the socket once it is there and answers until it is killed.
func serve(socket, dir, known string) error {
	s, err := prepare(context.Background(), dir, known)
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	stock := grpc.NewServer()
	authv3.RegisterAuthorizationServer(stock, s)
	fmt.Println(socket)
	return stock.Serve(listener)
}
