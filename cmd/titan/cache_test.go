package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
	"titan/pjrt"
	"titan/pjrt/compilecache"
)

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "compiled")
	t.Setenv(compilecache.EnvVar, dir)
	code, out, errs := titan(t, "cache")
	require.Zero(t, code, errs)
	require.Equal(t, "0 compiled programs (0.0 MiB) in "+dir+"\n", out)

	exe, o, err := compilecache.OpenDefault().Compile(xlatest.CPU(t), []byte(`module @twice {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %y = stablehlo.add %x, %x : tensor<f32>
    return %y : tensor<f32>
  }
}`), pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, exe.Close())
	require.True(t, o.Stored)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0123.exe"), []byte("x"), 0o600))

	code, out, errs = titan(t, "cache")
	require.Zero(t, code, errs)
	require.Contains(t, out, "2 compiled programs (")
	require.Regexp(t, `(?m)^twice +cpu +\d+ KiB +\d{4}-\d\d-\d\d [\d:]+ +\d{4}-\d\d-\d\d [\d:]+ +`+o.Key[:12]+`$`, out)
	require.Regexp(t, `(?m)^\(unreadable\) .* 0123$`, out)

	code, out, errs = titan(t, "cache", "clear")
	require.Zero(t, code, errs)
	require.Regexp(t, `^removed 2 compiled programs \(\d+\.\d MiB\) from `, out)
	code, out, _ = titan(t, "cache")
	require.Zero(t, code)
	require.Contains(t, out, "0 compiled programs")

	t.Setenv(compilecache.EnvVar, "off")
	code, _, errs = titan(t, "cache", "clear")
	require.Equal(t, 1, code)
	require.Equal(t, "titan: the compile cache is off: $TITAN_COMPILE_CACHE says so\n", errs)
	code, _, errs = titan(t, "cache", "claer")
	require.Equal(t, 2, code)
	require.Contains(t, errs, `did you mean "clear"?`)
}
