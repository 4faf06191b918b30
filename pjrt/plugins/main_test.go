package plugins

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Environment of a child: the test binary run again as an installer.
const (
	childPinned = "PLUGINS_TEST_PINNED" // JSON of the wheels
	childWheel  = "PLUGINS_TEST_WHEEL"  // InstallOptions.Wheel
	childLimit  = "PLUGINS_TEST_FSIZE"  // largest file it may write, bytes
)

func TestMain(m *testing.M) {
	if raw := os.Getenv(childPinned); raw != "" {
		os.Exit(child(raw))
	}
	os.Exit(m.Run())
}

// child installs the cpu plugin as another process would.
func child(raw string) int {
	if err := json.Unmarshal([]byte(raw), &pinned); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if s := os.Getenv(childLimit); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 3
		}
		signal.Ignore(syscall.SIGXFSZ) // a full disk raises no signal
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return 3
		}
	}
	path, err := Install(context.Background(), "cpu", InstallOptions{Wheel: os.Getenv(childWheel), Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(path)
	return 0
}

// childCommand is a process that installs the pinned cpu plugin.
func childCommand(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	raw, err := json.Marshal(pinned)
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), childPinned+"="+string(raw)), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// library is the content of the test plugin: large enough that it is written
// in several pieces, and incompressible enough.
var library = func() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 256<<10; i++ {
		h := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		b.Write(h[:])
	}
	return b.Bytes()
}()

const member = "package/plugin.so"

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// setup gives the test an empty cache and a cpu plugin pinned to a wheel that
// it makes; it returns the wheel's path.
func setup(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range map[string][]byte{"package/__init__.py": []byte("x = 1\n"), member: library} {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	wheel := filepath.Join(t.TempDir(), "package-1.0-py3-none-any.whl")
	require.NoError(t, os.WriteFile(wheel, b.Bytes(), 0o644))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TITAN_PLUGIN_CPU", "")
	pin(t, Wheel{
		Plugin: "cpu", Package: "package", Version: "1.0", SHA256: sum(b.Bytes()), Size: int64(b.Len()),
		Member: member, LibrarySHA256: sum(library), LibrarySize: int64(len(library)),
		Tags: []string{"--platform", "any"}, Note: "a note",
	})
	return wheel
}

func pin(t *testing.T, w ...Wheel) {
	t.Helper()
	old := pinned
	t.Cleanup(func() { pinned = old })
	pinned = w
}

// repin changes the pinned wheel.
func repin(t *testing.T, change func(*Wheel)) {
	t.Helper()
	w := pinned[0]
	change(&w)
	pin(t, w)
}

// fakePip is a python3 in front of PATH whose pip runs the shell code script
// for a download: $to is the target folder. It returns the file that gets one
// line of arguments for each download.
func fakePip(t *testing.T, script string) (calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	text := `#!/bin/sh
case "$*" in
"-m pip --version") echo "pip 99 from nowhere"; exit 0 ;;
"-m pip download "*) ;;
*) echo "unexpected: $*"; exit 9 ;;
esac
echo "$*" >> ` + calls + `
to=
while [ $# -gt 0 ]; do
	if [ "$1" = -d ]; then to=$2; fi
	shift
done
mkdir -p "$to"
` + script + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python3"), []byte(text), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return calls
}

func lineCount(t *testing.T, path string) int {
	t.Helper()
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return strings.Count(string(raw), "\n")
}

// cache maps the files below the cache to their content's hash. Lock files are
// left out.
func cache(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := os.Getenv("XDG_CACHE_HOME")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == lockName {
			if err == nil && strings.HasPrefix(d.Name(), tmpPrefix) {
				out[path] = "temporary folder"
			}
			return err
		}
		raw, err := os.ReadFile(path)
		out[path] = sum(raw)
		return err
	}))
	return out
}
