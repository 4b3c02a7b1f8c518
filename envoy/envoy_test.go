package envoy_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/arbiter-gateway/arbiter/envoy"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	script := func(name, output string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+output+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const old = "envoy  version: 0123abcd/1.2.3/Clean/RELEASE/BoringSSL"
	chosen, other := script("chosen", old), script("other", "something else 1.2.3")
	script("wrong/arbiter/envoy-"+envoy.Version()+"/envoy", old)
	right := script("right/arbiter/envoy-"+envoy.Version()+"/envoy", strings.Replace(old, "1.2.3", envoy.Version(), 1))
	tests := []struct {
		name, env, cache  string
		want, wantVersion string // "" for ErrNotFound
	}{
		{"the cache", "", dir + "/right", right, envoy.Version()},
		{"nothing in the cache", "", dir + "/none", "", ""},
		{"another version in the cache", "", dir + "/wrong", "", ""},
		{"ARBITER_ENVOY, any version", chosen, dir + "/right", chosen, "1.2.3"},
		{"ARBITER_ENVOY that is not there", dir + "/missing", dir + "/right", "", ""},
		{"ARBITER_ENVOY that is no Envoy", other, dir + "/right", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("ARBITER_ENVOY", test.env)
			t.Setenv("XDG_CACHE_HOME", test.cache)
			path, version, err := envoy.Find()
			if path != test.want || version != test.wantVersion {
				t.Errorf("got %q %q, want %q %q", path, version, test.want, test.wantVersion)
			}
			if missing := test.want == ""; errors.Is(err, envoy.ErrNotFound) != missing {
				t.Errorf("error %v", err)
			}
			if err != nil && !(strings.Contains(err.Error(), "make envoy") && strings.Contains(err.Error(), "ARBITER_ENVOY")) {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
}

func TestSystemRootsByEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "roots.pem")
	t.Setenv("SSL_CERT_FILE", file)
	if got, err := envoy.SystemRoots(); err == nil {
		t.Errorf("a missing file gave %q", got)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := envoy.SystemRoots(); got != file || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBootstrapNeedsAll(t *testing.T) {
	for _, c := range []envoy.Config{
		{},
		{Node: "n", Metadata: somewhere(), XDSSocket: "x"},
		{Node: "n", Metadata: somewhere(), AdminSocket: "a"},
		{Node: "n", XDSSocket: "x", AdminSocket: "a"},
		{Metadata: somewhere(), XDSSocket: "x", AdminSocket: "a"},
	} {
		if _, err := envoy.Bootstrap(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func somewhere() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"listen": structpb.NewStringValue("127.0.0.1:1")}}
}

// setup writes a bootstrap into a new directory; the xDS server is not there.
func setup(t *testing.T) (dir string, c envoy.RunnerConfig) {
	t.Helper()
	path, _, err := envoy.Find()
	if err != nil {
		t.Fatal(err)
	}
	dir, err = os.MkdirTemp("", "arb") // t.TempDir is too long for unix sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	admin := filepath.Join(dir, "admin.sock")
	bootstrap, err := envoy.Bootstrap(envoy.Config{Node: "n", Metadata: somewhere(), XDSSocket: filepath.Join(dir, "xds.sock"), AdminSocket: admin})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, envoy.RunnerConfig{
		Path: path, BootstrapFile: file, AdminSocket: admin, Concurrency: 1,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func TestBootstrapIsValid(t *testing.T) {
	_, c := setup(t)
	out, err := exec.Command(c.Path, "--mode", "validate", "--config-path", c.BootstrapFile, "--log-level", "warning").CombinedOutput()
	if err != nil || strings.Contains(string(out), "[warning]") {
		t.Errorf("envoy: %v\n%s", err, out)
	}
}

// TestRunnerRestartsAndStops kills Envoy, sees another one, and ends it.
func TestRunnerRestartsAndStops(t *testing.T) {
	_, c := setup(t)
	runner, err := envoy.NewRunner(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	first := alive(t, runner, c.AdminSocket, 0)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := alive(t, runner, c.AdminSocket, first)
	if info, err := os.Stat(c.AdminSocket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the admin socket: %v %v", info, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run returned %v", err)
	}
	for _, pid := range []int{first, second} {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if runner.Pid() != 0 {
		t.Error("there is still a pid")
	}
}

// alive waits for a running Envoy, other than before, that answers on its admin socket.
func alive(t *testing.T, runner *envoy.Runner, admin string, before int) int {
	t.Helper()
	client := envoy.AdminClient(admin)
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		answer, err := client.Get("http://envoy/server_info")
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if pid := runner.Pid(); pid != 0 && pid != before {
			return pid
		}
	}
	t.Fatal("no Envoy came up")
	return 0
}

func TestReadyEndsWithContext(t *testing.T) {
	_, c := setup(t)
	runner, err := envoy.NewRunner(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := runner.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestRunnerWithoutBinary(t *testing.T) {
	_, c := setup(t)
	c.Path = "/nonexistent/envoy"
	runner, err := envoy.NewRunner(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
