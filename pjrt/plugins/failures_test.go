package plugins

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rezip writes a wheel without the library, and pins it.
func rezip(t *testing.T, path string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	_, err := z.Create("package/readme")
	require.NoError(t, err)
	require.NoError(t, z.Close())
	overwrite(t, path, b.Bytes())
}

// overwrite gives the wheel other content, and pins it.
func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o644))
	repin(t, func(w *Wheel) { w.SHA256 = sum(content) })
}

// wrong has the length of a sha256 and is none.
var wrong = strings.Repeat("0", 64)

// failures are what can go wrong; break prepares it and returns the options of
// the installation that must fail, and what the message must say.
var failures = map[string]func(t *testing.T, wheel string) (InstallOptions, []string){
	"no python": func(t *testing.T, _ string) (InstallOptions, []string) {
		t.Setenv("PATH", t.TempDir())
		return InstallOptions{}, []string{"python3 is not on PATH", "apt-get install python3-pip", "--wheel"}
	},
	"no python of that name": func(t *testing.T, _ string) (InstallOptions, []string) {
		return InstallOptions{Python: "python-9.9"}, []string{"python-9.9 is not on PATH"}
	},
	"no pip": func(t *testing.T, _ string) (InstallOptions, []string) {
		dir := t.TempDir()
		text := "#!/bin/sh\necho '/usr/bin/python3: No module named pip' >&2; exit 1\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "python3"), []byte(text), 0o755))
		t.Setenv("PATH", dir)
		return InstallOptions{}, []string{"python3 has no pip", "No module named pip", "apt-get install python3-pip"}
	},
	"pip fails": func(t *testing.T, _ string) (InstallOptions, []string) {
		fakePip(t, "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; done; echo >&2 'ERROR: no route to host'; exit 1")
		return InstallOptions{}, []string{"pip could not fetch package 1.0:\n  line 6\n", "  ERROR: no route to host\n", "Check the network", "--wheel: python3 -m pip download --no-deps --only-binary=:all: --platform any package==1.0"}
	},
	"the disk fills while pip writes": func(t *testing.T, _ string) (InstallOptions, []string) {
		fakePip(t, `echo >&2 "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1`)
		return InstallOptions{}, []string{"pip could not write package 1.0 to ", "no space left on device", "nothing was installed", "XDG_CACHE_HOME"}
	},
	"pip leaves nothing": func(t *testing.T, _ string) (InstallOptions, []string) {
		fakePip(t, "exit 0")
		return InstallOptions{}, []string{"pip left 0 wheels"}
	},
	"another wheel from pip": func(t *testing.T, wheel string) (InstallOptions, []string) {
		fakePip(t, "echo other > $to/package-1.0.whl")
		return InstallOptions{}, []string{sum([]byte("other\n")), pinned[0].SHA256, "package 1.0"}
	},
	"another wheel from a file": func(t *testing.T, wheel string) (InstallOptions, []string) {
		other := filepath.Join(t.TempDir(), "other.whl")
		require.NoError(t, os.WriteFile(other, []byte("other"), 0o644))
		return InstallOptions{Wheel: other}, []string{"other.whl", sum([]byte("other")), pinned[0].SHA256}
	},
	"no wheel file": func(t *testing.T, wheel string) (InstallOptions, []string) {
		return InstallOptions{Wheel: wheel + "x"}, []string{"the wheel cannot be read", wheel + "x", "no such file"}
	},
	"wheel file is a folder": func(t *testing.T, wheel string) (InstallOptions, []string) {
		return InstallOptions{Wheel: filepath.Dir(wheel)}, []string{"the wheel cannot be read", filepath.Dir(wheel), "is a directory"}
	},
	"another library": func(t *testing.T, wheel string) (InstallOptions, []string) {
		repin(t, func(w *Wheel) { w.LibrarySHA256 = wrong })
		return InstallOptions{Wheel: wheel}, []string{member, sum(library), wrong}
	},
	"a shorter library": func(t *testing.T, wheel string) (InstallOptions, []string) {
		repin(t, func(w *Wheel) { w.LibrarySize++ })
		return InstallOptions{Wheel: wheel}, []string{"unpacks to 262144 bytes", "expected 262145 bytes"}
	},
	"no library in the wheel": func(t *testing.T, wheel string) (InstallOptions, []string) {
		rezip(t, wheel)
		return InstallOptions{Wheel: wheel}, []string{wheel, "has no " + member}
	},
	"not a zip": func(t *testing.T, wheel string) (InstallOptions, []string) {
		overwrite(t, wheel, []byte("garbage"))
		return InstallOptions{Wheel: wheel}, []string{wheel, "not a valid zip file"}
	},
	"a zip with damaged content": func(t *testing.T, wheel string) (InstallOptions, []string) {
		raw, err := os.ReadFile(wheel)
		require.NoError(t, err)
		at := bytes.Index(raw, library[:64]) // stored as it is: hashes do not compress
		require.Positive(t, at)
		raw[at] ^= 1
		overwrite(t, wheel, raw)
		return InstallOptions{Wheel: wheel}, []string{"checksum"}
	},
	"not enough space": func(t *testing.T, wheel string) (InstallOptions, []string) {
		repin(t, func(w *Wheel) { w.LibrarySize = 1 << 60 })
		return InstallOptions{Wheel: wheel}, []string{"MB free and 1152921504606 MB are needed", "no space left on device", "nothing was installed", "XDG_CACHE_HOME"}
	},
}

func TestInstallFailures(t *testing.T) {
	for name, prepare := range failures {
		t.Run(name, func(t *testing.T) {
			wheel := setup(t)
			o, says := prepare(t, wheel)
			_, err := Install(t.Context(), "cpu", o)
			require.ErrorContains(t, err, "installing the cpu plugin: ")
			for _, s := range says {
				require.ErrorContains(t, err, s)
			}
			require.Empty(t, cache(t))
			var missing *NotInstalledError
			_, err = Find("cpu")
			require.ErrorAs(t, err, &missing)
		})
		t.Run(name+", over an installed one", func(t *testing.T) {
			wheel := setup(t)
			good := pinned[0]
			_, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
			require.NoError(t, err)
			before := cache(t)
			o, _ := prepare(t, wheel)
			o.Force = true
			_, err = Install(t.Context(), "cpu", o)
			require.Error(t, err)
			require.Equal(t, before, cache(t))
			pin(t, good)
			require.NoError(t, Verify("cpu"))
		})
	}
}

func TestNoCacheFolder(t *testing.T) {
	wheel := setup(t)
	for _, c := range []struct{ xdg, home, says string }{
		{"", "", "set HOME or XDG_CACHE_HOME"},
		{"relative/cache", "/somewhere", "set HOME or XDG_CACHE_HOME (to an absolute path)"},
	} {
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		t.Setenv("HOME", c.home)
		_, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
		require.ErrorContains(t, err, c.says)
		_, err = Find("cpu")
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, Remove(t.Context(), "cpu"), c.says)
		require.Contains(t, List()[0].Problem, c.says)
	}
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	wheel := setup(t)
	root := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "titan")
	require.NoError(t, os.WriteFile(root, nil, 0o644)) // a file where a folder should be stops root, too
	_, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.ErrorContains(t, err, root)
	require.ErrorContains(t, err, "XDG_CACHE_HOME")
	_, err = Find("cpu")
	require.ErrorContains(t, err, root)

	if os.Geteuid() == 0 {
		return
	}
	require.NoError(t, os.Remove(root))
	require.NoError(t, os.Mkdir(root, 0o555))
	_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.ErrorContains(t, err, "permission denied; the cache must be a folder that can be written")
}

func TestCancelled(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		wheel := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Install(ctx, "cpu", InstallOptions{Wheel: wheel})
		require.EqualError(t, err, "installing the cpu plugin: interrupted; nothing was installed")
		require.Empty(t, cache(t))
	})
	t.Run("while pip fetches", func(t *testing.T) {
		setup(t)
		fakePip(t, "echo half > $to/package.whl; echo started; exec sleep 600")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := Install(ctx, "cpu", InstallOptions{Log: &trigger{on: "started", then: cancel}})
		require.EqualError(t, err, "installing the cpu plugin: interrupted; nothing was installed")
		require.Empty(t, cache(t))
	})
	t.Run("while another process installs", func(t *testing.T) {
		wheel := setup(t)
		dir, err := pluginDir("cpu")
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		unlock, err := lock(t.Context(), dir, io.Discard)
		require.NoError(t, err)
		defer unlock()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = Install(ctx, "cpu", InstallOptions{Wheel: wheel, Log: &trigger{on: "waiting for another process", then: cancel}})
		require.EqualError(t, err, "installing the cpu plugin: interrupted; nothing was installed")
		require.ErrorIs(t, Remove(ctx, "cpu"), context.Canceled)
	})
}

// trigger calls then once the log says on.
type trigger struct {
	seen strings.Builder
	on   string
	then func()
}

func (w *trigger) Write(p []byte) (int, error) {
	w.seen.Write(p)
	if strings.Contains(w.seen.String(), w.on) {
		w.then()
	}
	return len(p), nil
}

// A disk that fills up while the library is written: a limit on file size does
// the same to a write.
func TestDiskFull(t *testing.T) {
	wheel := setup(t)
	cmd := childCommand(t, childWheel+"="+wheel, childLimit+"=100000")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), string(out))
	for _, want := range []string{"installing the cpu plugin", "plugin.so: file too large", "nothing was installed", "XDG_CACHE_HOME"} {
		require.Contains(t, string(out), want)
	}
	require.Empty(t, cache(t))
}
