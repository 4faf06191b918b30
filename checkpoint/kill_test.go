package checkpoint

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
)

// killAt ends the process, as kill -9 would, at a certain change of the file
// system: before it, in the middle of it if it is a write, or after it.
type killAt struct {
	storage.FS
	left  atomic.Int64
	where int // 0 before, 1 in the middle, 2 after
}

func (k *killAt) do(f func() error) error {
	n := k.left.Add(-1)
	if n == 0 && k.where < 2 {
		die()
	}
	err := f()
	if n == 0 {
		die()
	}
	return err
}

func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // until the signal is there
}

func (k *killAt) Mkdir(n string) error     { return k.do(func() error { return k.FS.Mkdir(n) }) }
func (k *killAt) Rename(a, b string) error { return k.do(func() error { return k.FS.Rename(a, b) }) }
func (k *killAt) Remove(n string) error    { return k.do(func() error { return k.FS.Remove(n) }) }
func (k *killAt) SyncDir(n string) error   { return k.do(func() error { return k.FS.SyncDir(n) }) }
func (k *killAt) Create(n string) (f storage.File, err error) {
	err = k.do(func() error { f, err = k.FS.Create(n); return err })
	return killFile{f, k}, err
}

type killFile struct {
	storage.File
	k *killAt
}

func (f killFile) Write(p []byte) (int, error) {
	n := f.k.left.Add(-1)
	if n == 0 {
		if f.k.where > 0 {
			p = p[:len(p)*f.k.where/2]
			f.File.Write(p)
		}
		die()
	}
	return f.File.Write(p)
}

func (f killFile) Sync() error { return f.k.do(f.File.Sync) }

// TestKilledChild is the child of TestKill, not a test.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv("TITAN_TEST_KILL_DIR")
	if dir == "" {
		t.Skip("started by TestKill only")
	}
	local, err := storage.Local(dir)
	require.NoError(t, err)
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		require.NoError(t, err)
		return n
	}
	k := &killAt{FS: local, where: number("TITAN_TEST_KILL_WHERE")}
	k.left.Store(int64(number("TITAN_TEST_KILL_AT"))) // negative: killed by the parent
	o := testOptions(2)
	o.nonce, o.now = nil, nil
	o.Workers, o.FileSize = 2, 0
	s, err := NewStore(k, o)
	require.NoError(t, err)
	for step := number("TITAN_TEST_KILL_STEP"); ; step++ {
		fmt.Printf("try %d\n", step)
		_, err := s.Save(ctx, snapshot(step, step, smallMesh(t, 1), smallTensors()))
		require.NoError(t, err)
		fmt.Printf("saved %d\n", step)
	}
}

// A child process that does nothing but save is killed, over and over in the same
// folder: at a random operation, or after a random time. Every time what it said
// was saved is there, and whatever is there is whole.
func TestKill(t *testing.T) {
	rounds := 60
	if long {
		rounds = 2000
	}
	dir := t.TempDir()
	h := &history{keep: 2}
	rng := rand.New(rand.NewPCG(7, 7))
	inSave, seen := 0, 0
	for round := range rounds {
		at, where := 1+rng.IntN(45), rng.IntN(3)
		byParent := round%4 == 3
		if byParent {
			at = -1
		}
		step := 1
		if n := len(h.tried); n > 0 {
			step = h.tried[n-1].step + 1
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledChild$", "-test.v")
		cmd.Env = append(os.Environ(), "TITAN_TEST_KILL_DIR="+dir, fmt.Sprint("TITAN_TEST_KILL_AT=", at),
			fmt.Sprint("TITAN_TEST_KILL_WHERE=", where), fmt.Sprint("TITAN_TEST_KILL_STEP=", step))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var other []string
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			n, err := strconv.Atoi(rest)
			switch {
			case err == nil && word == "try":
				h.tried = append(h.tried, save{n, n})
			case err == nil && word == "saved":
				h.acked = append(h.acked, save{n, n})
			default:
				other = append(other, lines.Text())
			}
			if byParent && word == "try" && len(h.tried)%2 == 0 {
				// Not a timed assertion: any moment will do.
				time.Sleep(time.Duration(rng.IntN(6000)) * time.Microsecond)
				require.NoError(t, cmd.Process.Kill())
				byParent = false
			}
		}
		_, err = io.Copy(io.Discard, out)
		require.NoError(t, err)
		err = cmd.Wait()
		require.ErrorContains(t, err, "killed", "the child failed by itself: %s", strings.Join(other, "\n"))
		if len(h.tried) > 0 && (len(h.acked) == 0 || h.acked[len(h.acked)-1] != h.tried[len(h.tried)-1]) {
			inSave++
		}
		fs, err := storage.ExistingLocal(dir)
		require.NoError(t, err)
		require.NoError(t, h.check(fs, smallTensors()), "round %d", round)
		// What was committed but not acknowledged any more is there now, too, and
		// must stay like the rest.
		if c, err := NewFolder(fs).Open(Latest); err == nil {
			if n := len(h.acked); n == 0 || h.acked[n-1].step != c.Step() {
				h.acked = append(h.acked, save{c.Step(), c.Step()})
				seen++
			}
			require.NoError(t, c.Close())
		}
	}
	require.GreaterOrEqual(t, inSave, rounds*3/5, "most must die during a save")
	t.Logf("%d kills, %d of them during a save, %d saves acknowledged, %d committed without", rounds, inSave, len(h.acked)-seen, seen)
	fs, err := storage.ExistingLocal(dir)
	require.NoError(t, err)
	h.tried = append(h.tried, save{1 << 20, 1 << 20})
	s, err := NewStore(fs, testOptions(2))
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, checkTidy(fs))
	require.NoError(t, h.check(fs, smallTensors()))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, left)
}
