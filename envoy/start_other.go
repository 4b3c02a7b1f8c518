//go:build !linux

package envoy

import (
	"os/exec"
	"syscall"
)

// startAndWait runs a command to its end. Without Linux' Pdeathsig a child
// survives kill -9 of this process.
func startAndWait(cmd *exec.Cmd, started func(pid int)) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	started(cmd.Process.Pid)
	return cmd.Wait()
}
