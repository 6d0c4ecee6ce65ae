// Package osspecific, for Linux.
//
// In Argo's repository this file is a symbolic link, and archives of modules hold no links: the published module does
// not build on Linux without it. This one has the names that the rest of the package and its callers use.
package osspecific

import (
	"os"
	"syscall"
	"time"

	"github.com/argoproj/argo-workflows/v3/util/errors"
)

// Term is the signal that asks a process to end.
var Term = syscall.SIGTERM

// pollInterval is the time between two looks at the user's process. Argo's own executor looks as often; a process that
// ends on SIGTERM is therefore noticed up to a second later, as on a real cluster.
const pollInterval = time.Second

// CanIgnoreSignal reports whether a signal to the executor is not passed on to the user's process.
func CanIgnoreSignal(received os.Signal) bool {
	return received == syscall.SIGCHLD || received == syscall.SIGURG
}

// Setpgid gives the user's process a process group of its own.
func Setpgid(attributes *syscall.SysProcAttr) {
	attributes.Setpgid = true
}

// Kill signals the process group of pid, or pid alone if it has none.
func Kill(pid int, signal syscall.Signal) error {
	if group, err := syscall.Getpgid(pid); err == nil {
		return syscall.Kill(-group, signal)
	}
	return syscall.Kill(pid, signal)
}

// Wait reaps children until process has ended. A code other than 0, or a signal, is returned as an exit error.
func Wait(process *os.Process) error {
	pid := process.Pid
	if err := process.Release(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil {
			return err
		}
		if ended == pid && status.Exited() {
			return errors.NewExitErr(status.ExitStatus())
		}
		if ended == pid && status.Signaled() {
			return errors.NewExitErr(128 + int(status.Signal()))
		}
		time.Sleep(pollInterval)
	}
}
