package plan

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/pjrt"
	"titan/train"
)

// accountJob is a program of which the compiler's account of memory is wanted.
type accountJob struct {
	Plugin, Topology string
	Program          []byte
	Options          pjrt.CompileOptions
}

// outOfMemory is how a process says that its compiler found no room.
type outOfMemory struct{ Needed int64 }

// compileForAccount compiles a job. Most often it does not end: the parent has read
// what it wants to know long before.
func compileForAccount(in io.Reader, out io.Writer) error {
	var job accountJob
	if err := gob.NewDecoder(in).Decode(&job); err != nil {
		return err
	}
	t, err := mesh.ParseTopology(job.Topology)
	if err != nil {
		return err
	}
	top, err := openTopology(job.Plugin, t)
	if err != nil {
		return err
	}
	defer top.close()
	exe, err := top.Compile(job.Program, job.Options)
	var oom *pjrt.OutOfMemory
	if errors.As(err, &oom) && oom.Memory == "hbm" {
		return json.NewEncoder(out).Encode(outOfMemory{oom.Needed})
	}
	if err != nil {
		return err
	}
	return exe.Close()
}

// allocation is a line of the compiler's account: bytes, the number of the memory if
// not the main one, and what it is. Thread-local is what stands in for the buffers of
// the step in computations that sparse cores carry out beside it: it takes nothing.
var allocation = regexp.MustCompile(`(?m)^allocation [0-9]+: size ([0-9]+), (color [1-9][0-9]*, )?page [0-9]+, (thread-local)?`)

// account is what the compiler says that a step needs of a device, and whether it
// finds room for it. It says so before it makes code of the program, which takes it
// many times as long: a process of its own writes the account down, and is stopped.
func account(t *testing.T, plugin string, s *traced, step *train.Step, level int, limit int64) (needed int64, fits bool) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	job := accountJob{Plugin: plugin, Topology: s.topology.String(), Program: []byte(step.Module.StableHLO()), Options: train.CompileOptionsAt(s.mesh, train.PlatformOf(s.recipe), level)}
	var in, stdout, stderr bytes.Buffer
	require.NoError(t, gob.NewEncoder(&in).Encode(job))
	dir := t.TempDir()
	c := exec.Command(self, "account")
	c.Env = append(os.Environ(), fmt.Sprintf("XLA_FLAGS=--xla_dump_to=%s --xla_dump_hlo_as_text", dir))
	c.Stdin, c.Stdout, c.Stderr = &in, &stdout, &stderr
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case err := <-ended:
			require.NoError(t, err, "%s", &stderr)
			var oom outOfMemory
			require.NoError(t, json.Unmarshal(stdout.Bytes(), &oom), "it ended without an account: %s", &stdout)
			return oom.Needed, false
		case <-time.After(200 * time.Millisecond):
		}
		// This file comes after the one with the account, which is whole then.
		if after, err := filepath.Glob(filepath.Join(dir, "*after_buffer_assignment.txt")); err != nil || len(after) == 0 {
			require.NoError(t, err)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*-buffer-assignment.txt"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		text, err := os.ReadFile(files[0])
		require.NoError(t, err)
		needed = 0
		for _, m := range allocation.FindAllSubmatch(text, -1) {
			if len(m[2]) > 0 || len(m[3]) > 0 {
				continue
			}
			n, err := strconv.ParseInt(string(m[1]), 10, 64)
			require.NoError(t, err)
			needed += n
		}
		if needed <= limit { // of what is more, the compiler says itself that there is no room for it
			require.Greater(t, needed, s.arguments)
			require.NoError(t, c.Process.Kill())
			<-ended
			return needed, true
		}
	}
}
