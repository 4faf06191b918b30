package plugins

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A killed installation leaves a temporary folder, but no pip that still runs;
// the next one clears up and succeeds.
func TestKilled(t *testing.T) {
	wheel := setup(t)
	ready := filepath.Join(t.TempDir(), "ready")
	fakePip(t, "echo half > $to/package.whl; echo half > $TMPDIR/part; echo $$ > "+ready+".part; mv "+ready+".part "+ready+"; exec sleep 600")
	cmd := childCommand(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // its pip
	require.Eventually(t, func() bool { _, err := os.Stat(ready); return err == nil }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	raw, err := os.ReadFile(ready)
	require.NoError(t, err)
	pip, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !running(pip) }, time.Minute, 10*time.Millisecond, "pip goes with its installer")

	left := cache(t)
	require.NotEmpty(t, left, "the test means nothing if the kill leaves nothing behind")
	var missing *NotInstalledError
	_, err = Find("cpu")
	require.ErrorAs(t, err, &missing, "what is left is not taken for a plugin")

	_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	require.NoError(t, Verify("cpu"))
	require.Len(t, cache(t), 2)
}

// running says whether a process runs: one that ended may wait to be collected.
func running(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(raw, []byte(") Z "))
}

// Killed while it replaces an installed one: the installed one stays usable.
func TestKilledWhileReplacing(t *testing.T) {
	wheel := setup(t)
	_, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	dir, err := pluginDir("cpu")
	require.NoError(t, err)
	half := filepath.Join(dir, tmpPrefix+"1", "new")
	require.NoError(t, os.MkdirAll(half, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(half, "plugin.so"), library[:100], 0o644))
	require.NoError(t, Verify("cpu"))
	_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel, Force: true})
	require.NoError(t, err)
	require.Len(t, cache(t), 2)
}

func TestTwoProcessesAtOnce(t *testing.T) {
	wheel := setup(t)
	both := filepath.Join(t.TempDir(), "both")
	// The download ends when the other process waits for it.
	calls := fakePip(t, "i=0; while [ ! -e "+both+" ] && [ $i -lt 500 ]; do sleep 0.02; i=$((i+1)); done; cp "+wheel+" $to")
	type result struct {
		path string
		err  error
	}
	var logs [2]trigger
	done := make(chan result, 2)
	for i := range 2 {
		logs[i] = trigger{on: "waiting for another process", then: func() { _ = os.WriteFile(both, nil, 0o644) }}
		cmd := childCommand(t)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &logs[i]
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		go func() {
			err := cmd.Wait()
			done <- result{strings.TrimSpace(out.String()), err}
		}()
	}
	a, b := <-done, <-done
	require.NoError(t, a.err, logs[0].seen.String()+logs[1].seen.String())
	require.NoError(t, b.err, logs[0].seen.String()+logs[1].seen.String())
	require.Equal(t, a.path, b.path)
	require.Equal(t, 1, lineCount(t, calls), "one fetches, the other finds it installed")
	require.Contains(t, logs[0].seen.String()+logs[1].seen.String(), "is installed: "+a.path)
	require.NoError(t, Verify("cpu"))
	require.Len(t, cache(t), 2)
}
