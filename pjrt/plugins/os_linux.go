package plugins

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// exchange swaps two folders in one step. ENOSYS or EINVAL: this kernel or file
// system cannot.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// dieWithParent has the kernel end the command when the thread that starts it
// ends, so that no pip outlives an installer that was killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
