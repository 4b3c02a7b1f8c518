package envoy

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startAndWait runs a command to its end. The kernel kills the child when the
// thread that started it ends, so that it cannot outlive this process, not even
// after kill -9: the thread is kept for as long as the child lives.
func startAndWait(cmd *exec.Cmd, started func(pid int)) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Pdeathsig: syscall.SIGKILL,
			Setpgid:   true, // Ctrl-C is for us to handle, in order
		}
		if err := cmd.Start(); err != nil {
			done <- err
			return
		}
		started(cmd.Process.Pid)
		done <- cmd.Wait()
	}()
	return <-done
}
