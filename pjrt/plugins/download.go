package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
)

// download lets pip fetch w into dir and returns the wheel's path. pip brings
// the user's index, proxy and certificate settings along.
func download(ctx context.Context, w Wheel, o InstallOptions, dir string) (string, error) {
	python := o.Python
	if python == "" {
		python = "python3"
	}
	if _, err := exec.LookPath(python); err != nil {
		return "", fmt.Errorf("%s is not on PATH, and pip is needed to fetch %s; install it (Debian: apt-get install python3-pip) or pass a downloaded wheel with --wheel", python, w.Package)
	}
	if out, err := exec.CommandContext(ctx, python, "-m", "pip", "--version").CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%s has no pip (%s); install it (Debian: apt-get install python3-pip) or pass a downloaded wheel with --wheel", python, lastLines(out, 1))
	}
	to := filepath.Join(dir, "wheel")
	args := []string{"-m", "pip", "download", "--no-cache-dir", "--disable-pip-version-check", "-d", to}
	args = append(args, w.pipArgs()...)
	terminal := asTerminal(o.Log)
	if terminal == nil {
		args = append(args, "--progress-bar", "off")
	}
	cmd := exec.CommandContext(ctx, python, args...)
	dieWithParent(cmd)
	runtime.LockOSThread() // the parent is this thread
	defer runtime.UnlockOSThread()
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // what pip leaves when killed goes with dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second // for a pip that does not stop
	var out bytes.Buffer
	cmd.Stderr = io.MultiWriter(&out, o.Log)
	if cmd.Stdout = cmd.Stderr; terminal != nil {
		cmd.Stdout = terminal // errors, and they alone, are on the other
	}
	fmt.Fprintf(o.Log, "fetching %s %s (%d MB) with pip\n", w.Package, w.Version, w.Size/1e6)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if full := syscall.ENOSPC; strings.Contains(strings.ToLower(out.String()), full.Error()) {
			return "", fmt.Errorf("pip could not write %s %s to %s: %w", w.Package, w.Version, dir, full)
		}
		return "", fmt.Errorf("pip could not fetch %s %s:\n%s\nCheck the network and pip's settings, or fetch the wheel elsewhere and pass it with --wheel: python3 -m pip download %s", w.Package, w.Version, lastLines(out.Bytes(), 5), strings.Join(w.pipArgs(), " "))
	}
	found, err := filepath.Glob(filepath.Join(to, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(err, fmt.Errorf("pip left %d wheels, expected one", len(found)))
	}
	return found[0], nil
}

// pipArgs select the wheel for `pip download`.
func (w Wheel) pipArgs() []string {
	args := append([]string{"--no-deps", "--only-binary=:all:"}, w.Tags...)
	return append(args, w.Package+"=="+w.Version)
}

// asTerminal returns the terminal that w is, or nil.
func asTerminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// lastLines returns the last n non-empty lines, indented.
func lastLines(out []byte, n int) string {
	var lines []string
	for _, l := range strings.Split(string(out), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, "  "+l)
		}
	}
	if n == 1 && len(lines) > 0 {
		return strings.TrimSpace(lines[len(lines)-1])
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
