package envoy_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/envoy"
)

// TestEnvoyDiesWithItsParent kills a process that runs Envoy and sees Envoy go.
func TestEnvoyDiesWithItsParent(t *testing.T) {
	if os.Getenv("ARBITER_TEST_PARENT") != "" {
		parent(t)
		return
	}
	dir, c := setup(t)
	self := exec.Command(os.Args[0], "-test.run", "^TestEnvoyDiesWithItsParent$")
	self.Env = append(os.Environ(), "ARBITER_TEST_PARENT="+dir, "ARBITER_ENVOY="+c.Path)
	listener, err := net.Listen("unix", filepath.Join(dir, "pid.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = self.Wait()
	for deadline := time.Now().Add(5 * time.Second); !gone(child); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("Envoy %d has outlived its parent", child)
		}
	}
}

// gone reports whether a process has ended; nobody may have waited for it yet.
func gone(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err != nil || strings.Contains(string(status), "State:\tZ")
}

// parent is the process that is killed: it runs Envoy and says its pid.
func parent(t *testing.T) {
	dir := os.Getenv("ARBITER_TEST_PARENT")
	runner, err := envoy.NewRunner(envoy.RunnerConfig{
		Path: os.Getenv("ARBITER_ENVOY"), BootstrapFile: filepath.Join(dir, "envoy.json"),
		AdminSocket: filepath.Join(dir, "admin.sock"), Concurrency: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = runner.Run(context.Background()) }()
	pid := alive(t, runner, filepath.Join(dir, "admin.sock"), 0)
	conn, err := net.Dial("unix", filepath.Join(dir, "pid.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, strconv.Itoa(pid)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {}
}
