//go:build !linux

package plugins

import (
	"os/exec"
	"syscall"
)

// Nothing is pinned for other systems; there, plugins are found by path.

func exchange(_, _ string) error { return syscall.ENOSYS }

func dieWithParent(*exec.Cmd) {}
