package plugins

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGlibc(t *testing.T) {
	require.Regexp(t, `^2\.\d+`, GlibcVersion())
	w := Wheel{Package: "package", Version: "1.0", Tags: []string{"--platform", "manylinux_2_31_x86_64"}}
	for _, have := range []string{"2.31", "2.100", "2.31.9000", "3.0"} {
		require.NoError(t, checkGlibc(w, have), have)
	}
	require.EqualError(t, checkGlibc(w, "2.9"), "package 1.0 needs glibc 2.31 or later, this system has 2.9; use a newer system or container")
	require.EqualError(t, checkGlibc(w, "1.99"), "package 1.0 needs glibc 2.31 or later, this system has 1.99; use a newer system or container")
	require.EqualError(t, checkGlibc(w, ""), "package 1.0 needs glibc 2.31 or later, and this system has another C library")
	require.NoError(t, checkGlibc(Wheel{Tags: []string{"--platform", "any"}}, ""))
}

// A system too old for the library is told before anything is fetched.
func TestInstallOnAnOldSystem(t *testing.T) {
	wheel := setup(t)
	repin(t, func(w *Wheel) { w.Tags = []string{"--platform", "manylinux_99_0_x86_64"} })
	calls := fakePip(t, "cp "+wheel+" $to")
	_, err := Install(t.Context(), "cpu", InstallOptions{})
	require.ErrorContains(t, err, "installing the cpu plugin: package 1.0 needs glibc 99.0 or later")
	require.Zero(t, lineCount(t, calls))
	require.Empty(t, cache(t))
}

func TestMissing(t *testing.T) {
	old := cudaNeeds
	t.Cleanup(func() { cudaNeeds = old })
	gone := []Need{{"libnone.so.1", driver}, {"libnone.so.2", "package-a"}, {"libnone.so.3", "package-a"}, {"libnone.so.4", "package-b"}}
	cudaNeeds = append([]Need{{"libc.so.6", "the C library"}}, gone...)
	require.Equal(t, gone, Missing("cuda"))
	require.Empty(t, Missing("cpu"))
	require.Equal(t, "install the NVIDIA driver; python3 -m pip install --target DIR package-a package-b, and put each DIR/nvidia/*/lib on LD_LIBRARY_PATH", MendMissing(gone))
	require.Equal(t, "install the NVIDIA driver", MendMissing(gone[:1]))
}

func TestCompileOnlyEnv(t *testing.T) {
	require.Equal(t, "1", CompileOnlyEnv("tpu")["TPU_SKIP_MDS_QUERY"])
	require.Empty(t, CompileOnlyEnv("cpu"))
}
