package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/launch"
	"titan/pjrt/plugins"
)

// emptyMachine hides what is installed here from the test, and puts a pip that
// answers at once in front.
func emptyMachine(t *testing.T) {
	t.Helper()
	fakePython(t, "echo 'pip 99.1 from nowhere (python 9)'")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, name := range plugins.Names() {
		t.Setenv(plugins.EnvVar(name), "")
	}
	for _, name := range []string{launch.EnvProcesses, launch.EnvProcess, launch.EnvHostnames, launch.EnvAddresses, launch.EnvWorker, launch.EnvSlices} {
		t.Setenv(name, "")
	}
}

func fakePython(t *testing.T, script string) {
	t.Helper()
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", bin)
}

// doctor returns the findings by their check, and the exit code.
func doctor(t *testing.T) (map[string]finding, int) {
	t.Helper()
	code, stdout, stderr := titan(t, "doctor", "--json")
	var list []finding
	require.NoError(t, json.Unmarshal([]byte(stdout), &list), stdout+stderr)
	by := map[string]finding{}
	for _, f := range list {
		require.NotEmpty(t, f.Says, f.Check)
		if f.OK {
			require.Empty(t, f.Mend, f.Check)
		} else {
			require.NotEmpty(t, f.Mend, f.Check)
		}
		by[f.Check] = f
	}
	require.Len(t, by, len(list))
	return by, code
}

func TestDoctorOfAnEmptyMachine(t *testing.T) {
	emptyMachine(t)
	found, code := doctor(t)
	require.Equal(t, 1, code)
	require.Len(t, found, 8)
	for _, check := range []string{"titan", "machine", "hosts", "cache"} {
		require.True(t, found[check].OK, check)
	}
	require.Contains(t, found["cache"].Says, filepath.Join(os.Getenv("XDG_CACHE_HOME"), "titan", "plugins"))
	require.Equal(t, finding{Check: "cpu plugin", Required: true, Says: "not installed (lammps-jax-pjrt-cpu 0.11.2)", Mend: "titan plugin install cpu"}, found["cpu plugin"])
	require.False(t, found["tpu plugin"].Required)
	require.Equal(t, "titan plugin install tpu", found["tpu plugin"].Mend)

	code, stdout, stderr := titan(t, "doctor")
	require.Equal(t, 1, code)
	require.Regexp(t, `(?m)^BROKEN   cpu plugin   not installed \(.*\)\n +→ titan plugin install cpu$`, stdout)
	require.Regexp(t, `(?m)^missing  tpu plugin   not installed`, stdout)
	require.Equal(t, "titan: 1 required check(s) failed; see above\n", stderr)
}

// What the environment says of other hosts is shown, and what is wrong with it.
func TestDoctorOfHosts(t *testing.T) {
	emptyMachine(t)
	t.Setenv(launch.EnvSkipMetadata, "true")
	found, _ := doctor(t)
	require.Equal(t, "one process: nothing in the environment says otherwise", found["hosts"].Says)
	t.Setenv(launch.EnvHostnames, "127.0.0.1,127.0.0.2")
	t.Setenv(launch.EnvWorker, "1")
	t.Setenv(launch.EnvTopology, "2x4")
	found, _ = doctor(t)
	require.True(t, found["hosts"].OK)
	require.Equal(t, "process 1 of 2 (2x4), coordinator 127.0.0.1:8491, by TPU_WORKER_HOSTNAMES", found["hosts"].Says)
	t.Setenv(launch.EnvWorker, "2")
	found, _ = doctor(t)
	require.False(t, found["hosts"].OK)
	require.True(t, found["hosts"].Required)
	require.Contains(t, found["hosts"].Says, `TPU_WORKER_ID is "2" and must be the number of one of the 2 hosts`)
}

func TestDoctorOfAWorkingPlugin(t *testing.T) {
	cpu, err := plugins.Find("cpu")
	require.NoError(t, err)
	emptyMachine(t)
	t.Setenv("TITAN_PLUGIN_CPU", cpu)
	found, code := doctor(t)
	require.Equal(t, 0, code)
	require.True(t, found["cpu plugin"].OK)
	require.Regexp(t, `\.so \(TITAN_PLUGIN_CPU\), PJRT API 0\.\d+, cpu, \d+ device\(s\)$`, found["cpu plugin"].Says)

	code, stdout, _ := titan(t, "plugin", "list")
	require.Equal(t, 0, code)
	require.Regexp(t, `(?m)^PLUGIN +PINNED +PJRT API +SOURCE +PATH$`, stdout)
	require.Regexp(t, `(?m)^cpu +lammps-jax-pjrt-cpu 0\.11\.2 +0\.\d+ +TITAN_PLUGIN_CPU +/.*\.so$`, stdout)
	require.Regexp(t, "(?m)^tpu +libtpu 0\\.0\\.52 +- +- +the tpu plugin is not installed; run `titan plugin install tpu`", stdout)

	code, stdout, _ = titan(t, "plugin", "probe", "cpu", cpu)
	require.Equal(t, 0, code)
	var p probed
	require.NoError(t, json.Unmarshal([]byte(lastLine(stdout)), &p), stdout)
	require.True(t, p.Compiles)
	require.Equal(t, "cpu", p.Platform)
	require.Positive(t, p.Devices)
}

// A broken library is reported with what to do, and never takes titan along.
func TestDoctorOfBrokenPlugins(t *testing.T) {
	text := func(content string) string {
		path := filepath.Join(t.TempDir(), "plugin.so")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
		return path
	}
	for name, c := range map[string]struct {
		path string
		says []string
	}{
		"missing":        {filepath.Join(t.TempDir(), "none.so"), []string{"none.so: no such file or directory"}},
		"folder":         {t.TempDir(), []string{"which is not a file"}},
		"empty":          {text(""), []string{"is not a loadable library"}},
		"garbage":        {text("garbage, and more of it than an ELF header is long: 0123456789"), []string{"is not a loadable library"}},
		"cut off":        {text("\x7fELF\x02\x01\x01" + string(make([]byte, 60))), []string{"is not a loadable library"}},
		"other library":  {writeLibrary(t, "something", codeNull, nil), []string{"does not export GetPjrtApi"}},
		"no table":       {writeLibrary(t, "GetPjrtApi", codeNull, nil), []string{"GetPjrtApi returned nothing"}},
		"too old":        {writeLibrary(t, "GetPjrtApi", codeTable, apiTable(40, 0, 40)), []string{"speaks version 0.40", "needs 0.107 or a later 0.x", "install a newer plugin"}},
		"too new":        {writeLibrary(t, "GetPjrtApi", codeTable, apiTable(40, 1, 0)), []string{"speaks version 1.0", "use an older plugin"}},
		"no functions":   {writeLibrary(t, "GetPjrtApi", codeTable, apiTable(40, 0, 115)), []string{"this plugin does not provide it"}},
		"senseless size": {writeLibrary(t, "GetPjrtApi", codeTable, apiTable(8, 0, 115)), []string{"library.so"}},
		"crashes":        {writeLibrary(t, "GetPjrtApi", codeCrash, nil), []string{"the process died", "SIGSEGV"}},
		"exits":          {writeLibrary(t, "GetPjrtApi", codeExit, nil), []string{"the process ended without an answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			emptyMachine(t)
			t.Setenv("TITAN_PLUGIN_CPU", c.path)
			found, code := doctor(t)
			require.Equal(t, 1, code)
			f := found["cpu plugin"]
			require.False(t, f.OK)
			require.True(t, f.Required)
			require.Contains(t, f.Says, c.path)
			require.NotContains(t, f.Says, "\n")
			for _, want := range c.says {
				require.Contains(t, f.Says, want)
			}
			require.Equal(t, "unset TITAN_PLUGIN_CPU or let it name a PJRT plugin library", f.Mend)
			code, _, _ = titan(t, "plugin", "list")
			require.Equal(t, 0, code)
		})
	}
}

func TestUnusable(t *testing.T) {
	failed := errors.New("no visible device")
	for name, c := range map[string]struct {
		source     string
		p          probed
		says, mend string
	}{
		"libraries missing": {"cache", probed{API: "0.115", Missing: []plugins.Need{{Library: "liba.so.1", From: "package-a"}, {Library: "libb.so.1", From: "package-b"}}},
			"PJRT API 0.115, not usable here: no visible device; it also needs liba.so.1, libb.so.1",
			"python3 -m pip install --target DIR package-a package-b, and put each DIR/nvidia/*/lib on LD_LIBRARY_PATH"},
		"sound but not here": {"cache", probed{API: "0.115"}, "PJRT API 0.115, not usable here: no visible device",
			"the library is as published: mend on this machine what the message names, or name another build in TITAN_PLUGIN_CUDA"},
		"the user's": {"TITAN_PLUGIN_CUDA", probed{}, "no visible device", "unset TITAN_PLUGIN_CUDA or let it name a PJRT plugin library"},
	} {
		t.Run(name, func(t *testing.T) {
			says, mend := unusable(plugins.Status{Name: "cuda", Source: c.source}, c.p, failed)
			require.Equal(t, c.says, says)
			require.Equal(t, c.mend, mend)
		})
	}
}

// A file of the right size and the wrong content: only its hash tells.
func TestDamagedContent(t *testing.T) {
	emptyMachine(t)
	w, err := plugins.Pinned("cpu")
	require.NoError(t, err)
	root, err := plugins.Dir()
	require.NoError(t, err)
	dir := filepath.Join(root, "cpu", w.Version+"-"+w.SHA256[:8])
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, filepath.Base(w.Member))
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, os.Truncate(path, w.LibrarySize)) // sparse
	manifest := fmt.Sprintf(`{"SHA256": %q, "Size": %d}`, w.LibrarySHA256, w.LibrarySize)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o644))

	code, stdout, _ := titan(t, "plugin", "list")
	require.Equal(t, 0, code)
	require.Regexp(t, `(?m)^cpu +lammps-jax-pjrt-cpu 0\.11\.2 +unreadable +cache +/`, stdout)
	code, stdout, stderr := titan(t, "plugin", "list", "--verify")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "instead of "+w.LibrarySHA256)
	require.Contains(t, stderr, "run `titan plugin install --force cpu`")
	found, code := doctor(t)
	require.Equal(t, 1, code)
	require.Regexp(t, "^/.* has sha256 [0-9a-f]{64} instead of "+w.LibrarySHA256+"$", found["cpu plugin"].Says)
	require.Equal(t, "titan plugin install --force cpu", found["cpu plugin"].Mend)
}

func TestDoctorOfAPluginThatHangs(t *testing.T) {
	old := probeTime
	t.Cleanup(func() { probeTime = old })
	probeTime = time.Second
	emptyMachine(t)
	t.Setenv("TITAN_PLUGIN_TPU", writeLibrary(t, "GetPjrtApi", codeHang, nil))
	found, code := doctor(t)
	require.Equal(t, 1, code)
	require.Contains(t, found["tpu plugin"].Says, "no answer within 1s")
	require.True(t, found["tpu plugin"].Required, "the user asked for it")
}

func TestDoctorOfTheCache(t *testing.T) {
	emptyMachine(t)
	t.Run("a file in its place", func(t *testing.T) {
		root := filepath.Join(t.TempDir(), "cache")
		require.NoError(t, os.WriteFile(root, nil, 0o644))
		t.Setenv("XDG_CACHE_HOME", root)
		found, code := doctor(t)
		require.Equal(t, 1, code)
		require.False(t, found["cache"].OK)
		require.Contains(t, found["cache"].Says, root)
		require.Contains(t, found["cache"].Mend, "XDG_CACHE_HOME")
	})
	t.Run("no home", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("HOME", "")
		found, code := doctor(t)
		require.Equal(t, 1, code)
		require.Contains(t, found["cache"].Mend, "set HOME or XDG_CACHE_HOME")
		require.Equal(t, "see the line about the cache", found["cpu plugin"].Mend)
	})
	t.Run("not writable", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write everywhere")
		}
		root := t.TempDir()
		require.NoError(t, os.Chmod(root, 0o555))
		t.Setenv("XDG_CACHE_HOME", root)
		found, _ := doctor(t)
		require.False(t, found["cache"].OK)
		require.Contains(t, found["cache"].Says, "cannot be written")
	})
}

func TestDoctorWithoutPip(t *testing.T) {
	emptyMachine(t)
	found, _ := doctor(t)
	require.Equal(t, "pip 99.1", found["pip"].Says)
	t.Setenv("PATH", t.TempDir())
	found, _ = doctor(t)
	require.Contains(t, found["pip"].Says, "python3")
	require.Contains(t, found["pip"].Mend, "apt-get install python3-pip")
	fakePython(t, "echo 'No module named pip' >&2; exit 1")
	found, _ = doctor(t)
	require.Equal(t, "python3 -m pip does not run: No module named pip", found["pip"].Says)
	require.False(t, found["pip"].Required)
}

func TestDeathCause(t *testing.T) {
	require.Equal(t, "SIGILL: illegal instruction", deathCause("E0000 noise\nSIGILL: illegal instruction\nPC=0x1\n\nrax 0x0\n"))
	require.Equal(t, "panic: odd", deathCause("panic: odd\n\ngoroutine 1\n"))
	require.Equal(t, "CHECK failed", deathCause("start\nCHECK failed\n\n"))
	require.Equal(t, "", deathCause(""))
}
