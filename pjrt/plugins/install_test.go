package plugins

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstallFromPip(t *testing.T) {
	wheel := setup(t)
	calls := fakePip(t, "cp "+wheel+" $to")
	_, err := Find("cpu")
	var missing *NotInstalledError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "titan plugin install cpu")
	require.ErrorContains(t, err, "TITAN_PLUGIN_CPU")

	var log bytes.Buffer
	path, err := Install(t.Context(), "cpu", InstallOptions{Log: &log})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(os.Getenv("XDG_CACHE_HOME"), "titan/plugins/cpu/1.0-"+pinned[0].SHA256[:8], "plugin.so"), path)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, library, raw)
	require.Contains(t, log.String(), "a note")
	args, err := os.ReadFile(calls)
	require.NoError(t, err)
	for _, want := range []string{"package==1.0", "--platform any", "--no-deps", "--only-binary=:all:"} {
		require.Contains(t, string(args), want)
	}
	require.Len(t, cache(t), 2, "the library and its manifest, nothing else")

	found, err := Find("cpu")
	require.NoError(t, err)
	require.Equal(t, path, found)
	require.NoError(t, Verify("cpu"))
	require.Equal(t, []Status{{Name: "cpu", Pinned: "package 1.0", Source: "cache", Path: path}}, List())

	// Installed: nothing is fetched, unless forced.
	before := cache(t)
	again, err := Install(t.Context(), "cpu", InstallOptions{})
	require.NoError(t, err)
	require.Equal(t, path, again)
	require.Equal(t, 1, lineCount(t, calls))
	_, err = Install(t.Context(), "cpu", InstallOptions{Force: true})
	require.NoError(t, err)
	require.Equal(t, 2, lineCount(t, calls))
	require.Equal(t, before, cache(t))
}

func TestInstallFromWheelFile(t *testing.T) {
	wheel := setup(t)
	t.Setenv("PATH", t.TempDir()) // no python
	path, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	require.FileExists(t, path)
	require.FileExists(t, wheel, "the user's file stays")
	require.NoError(t, Verify("cpu"))
}

func TestVersionsLieSideBySide(t *testing.T) {
	wheel := setup(t)
	first, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	repin(t, func(w *Wheel) { w.Version = "2.0" })
	var missing *NotInstalledError
	_, err = Find("cpu")
	require.ErrorAs(t, err, &missing)
	second, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.FileExists(t, first)
}

func TestDamagedLibrary(t *testing.T) {
	wheel := setup(t)
	path, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	manifest := filepath.Join(filepath.Dir(path), manifestName)
	for name, c := range map[string]struct {
		damage func() error
		says   string
	}{
		"truncated":          {func() error { return os.Truncate(path, 1000) }, "has 1000 bytes instead of 262144"},
		"another manifest":   {func() error { return os.WriteFile(manifest, []byte(`{"SHA256": "`+wrong+`", "Size": 262144}`), 0o644) }, "is not the pinned one"},
		"library gone":       {func() error { return os.Remove(path) }, "is missing"},
		"manifest gone":      {func() error { return os.Remove(manifest) }, "has no readable manifest.json"},
		"manifest truncated": {func() error { return os.Truncate(manifest, 20) }, "has no readable manifest.json"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.damage())
			_, err := Find("cpu")
			var damaged *DamagedError
			require.ErrorAs(t, err, &damaged)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "titan plugin install --force cpu")
			require.Equal(t, err.Error(), List()[0].Problem)
			require.Error(t, Verify("cpu"))
			// Installing mends it, with or without force.
			_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
			require.NoError(t, err)
			require.NoError(t, Verify("cpu"))
			require.Len(t, cache(t), 2)
		})
	}
}

func TestVerifyFindsAFlippedBit(t *testing.T) {
	wheel := setup(t)
	path, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	raw := bytes.Clone(library)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o644))
	_, err = Find("cpu")
	require.NoError(t, err, "the size is what it was")
	var damaged *DamagedError
	err = Verify("cpu")
	require.ErrorAs(t, err, &damaged)
	require.ErrorContains(t, err, sum(raw))
	require.ErrorContains(t, err, sum(library))
	_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel, Force: true})
	require.NoError(t, err)
	require.NoError(t, Verify("cpu"))
}

func TestOverride(t *testing.T) {
	wheel := setup(t)
	lib := filepath.Join(t.TempDir(), "mine.so")
	t.Setenv("TITAN_PLUGIN_CPU", lib)
	_, err := Find("cpu")
	require.EqualError(t, err, "environment variable TITAN_PLUGIN_CPU names the plugin "+lib+": no such file or directory")
	require.Equal(t, err, Verify("cpu"))

	require.NoError(t, os.Mkdir(lib, 0o755))
	_, err = Find("cpu")
	require.EqualError(t, err, "environment variable TITAN_PLUGIN_CPU names the plugin "+lib+", which is not a file")
	require.Equal(t, Status{Name: "cpu", Pinned: "package 1.0", Problem: err.Error()}, List()[0])

	require.NoError(t, os.Remove(lib))
	require.NoError(t, os.WriteFile(lib, []byte("anything"), 0o644))
	_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	path, err := Find("cpu")
	require.NoError(t, err)
	require.Equal(t, lib, path, "the variable wins over the cache")
	require.NoError(t, Verify("cpu"), "nothing to compare with")
	require.Equal(t, "TITAN_PLUGIN_CPU", List()[0].Source)

	t.Chdir(filepath.Dir(lib))
	t.Setenv("TITAN_PLUGIN_CPU", "mine.so")
	path, err = Find("cpu")
	require.NoError(t, err)
	require.Equal(t, lib, path, "made absolute")
	_, err = Override("nope.so", "--plugin")
	require.EqualError(t, err, "--plugin names the plugin nope.so: no such file or directory")
}

func TestUnknownName(t *testing.T) {
	const want = `unknown plugin "gpu"; there are cpu, tpu, cuda`
	_, err := Find("gpu")
	require.EqualError(t, err, want)
	_, err = Install(t.Context(), "gpu", InstallOptions{})
	require.EqualError(t, err, want)
	require.EqualError(t, Verify("gpu"), want)
	require.EqualError(t, Remove(t.Context(), "gpu"), want)
}

func TestRemove(t *testing.T) {
	wheel := setup(t)
	var missing *NotInstalledError
	require.ErrorAs(t, Remove(t.Context(), "cpu"), &missing)
	_, err := Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	repin(t, func(w *Wheel) { w.Version = "2.0" })
	_, err = Install(t.Context(), "cpu", InstallOptions{Wheel: wheel})
	require.NoError(t, err)
	require.Len(t, cache(t), 4)
	require.NoError(t, Remove(t.Context(), "cpu"))
	require.Empty(t, cache(t))
	_, err = Find("cpu")
	require.ErrorAs(t, err, &missing)
	require.ErrorAs(t, Remove(t.Context(), "cpu"), &missing, "nothing is left to remove")
}

// The real pins are well formed: a slip in one is found before it is shipped.
func TestPins(t *testing.T) {
	require.Equal(t, []string{"cpu", "tpu", "cuda"}, Names())
	for _, w := range pinned {
		require.Regexp(t, "^[0-9a-f]{64}$", w.SHA256)
		require.Regexp(t, "^[0-9a-f]{64}$", w.LibrarySHA256)
		require.Regexp(t, `^\S+\.so$`, w.Member)
		require.Regexp(t, `^\d+\.\d+\.\d+$`, w.Version)
		require.Greater(t, w.LibrarySize, w.Size)
		require.Contains(t, w.Tags, "--platform")
	}
}

func TestOtherMachines(t *testing.T) {
	require.NoError(t, supported("linux", "amd64"))
	for _, c := range [][2]string{{"linux", "arm64"}, {"darwin", "arm64"}} {
		err := supported(c[0], c[1])
		require.ErrorContains(t, err, "linux/amd64 only, this is "+c[0]+"/"+c[1])
		require.ErrorContains(t, err, "TITAN_PLUGIN_CPU")
	}
}

// When places cannot be exchanged, an old version steps aside, and returns if
// the new one cannot be moved in.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	fresh, final, aside := filepath.Join(dir, "fresh"), filepath.Join(dir, "final"), filepath.Join(dir, "aside")
	require.NoError(t, os.Mkdir(final, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(final, "old"), nil, 0o644))
	require.Error(t, replace(fresh, final, aside), "there is no new version")
	require.FileExists(t, filepath.Join(final, "old"))
	require.NoError(t, os.Mkdir(fresh, 0o755))
	require.NoError(t, replace(fresh, final, aside))
	require.NoFileExists(t, filepath.Join(final, "old"))
	require.FileExists(t, filepath.Join(aside, "old"))
}

func TestReaderStopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	wheel := setup(t)
	cancel()
	dir := t.TempDir()
	require.ErrorIs(t, unpack(ctx, pinned[0], wheel, dir), context.Canceled)
	require.ErrorIs(t, checkWheel(ctx, pinned[0], wheel), context.Canceled)
}

// The page says what is pinned.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/plugins.md")
	require.NoError(t, err)
	for _, w := range pinned {
		require.Contains(t, string(page), "| `"+w.Plugin+"` | "+w.Package+" "+w.Version+" |")
		require.Contains(t, string(page), EnvVar(w.Plugin))
	}
}
