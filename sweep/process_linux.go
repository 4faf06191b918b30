package sweep

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from a process, which is for its parent to end,
// and has the system end it if the parent is killed.
func apart(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
