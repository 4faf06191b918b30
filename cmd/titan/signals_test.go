package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A command that waits for something else than its context ends all the same.
func TestInterruptWhileWaiting(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "recipe.toml")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for s, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		cmd := exec.Command(os.Args[0], "config", "check", "--config", pipe)
		require.NoError(t, cmd.Start())
		// It waits once it is there to open the pipe, which lets us open it too.
		w := openWhenRead(t, pipe)
		require.NoError(t, cmd.Process.Signal(s))
		_ = cmd.Wait()
		require.NoError(t, w.Close())
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%v", cmd.ProcessState)
	}
}

// openWhenRead opens a named pipe for writing, once there is a reader.
func openWhenRead(t *testing.T, pipe string) *os.File {
	t.Helper()
	for {
		w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return w
		}
		require.ErrorIs(t, err, syscall.ENXIO)
		time.Sleep(time.Millisecond)
	}
}
