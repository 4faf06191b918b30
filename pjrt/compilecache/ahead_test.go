package compilecache

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
)

// Code for TPU is found whatever host compiled it, and in every process; for others
// the host counts.
func TestKeysForTPU(t *testing.T) {
	cache, c := Open(t.TempDir()), xlatest.CPU(t)
	key := func(change func(*target)) string {
		to := targetOf(c)
		to.platform = "tpu"
		change(&to)
		k, err := cache.keyFor(to, program("1.0", 2), options(2))
		require.NoError(t, err)
		return k
	}
	base := key(func(*target) {})
	elsewhere := func(to *target) { to.version, to.process = "built elsewhere", 7 }
	require.Equal(t, base, key(elsewhere))
	real := processor
	processor = func() string { return "another" }
	defer func() { processor = real }()
	require.Equal(t, base, key(func(*target) {}))
	require.NotEqual(t, base, key(func(to *target) { to.devices = to.devices[1:] }))
	require.NotEqual(t, base, key(func(to *target) { to.platform = "cpu" }))
	cpu := func(to *target) { to.platform = "cpu" }
	require.NotEqual(t, key(cpu), key(func(to *target) { cpu(to); elsewhere(to) }))
}

// What is stored about a program is found only with the program, whole.
func TestAhead(t *testing.T) {
	top, err := xlatest.TPU(t).NewTopology("v5e:2x2", nil)
	require.NoError(t, err)
	defer top.Close()
	cache := Open(t.TempDir())
	get := func(code string) (*Ahead, Outcome) {
		a, out, err := cache.CompileFor(top, program(code, 4), program(code, 4), options(4))
		require.NoError(t, err)
		require.NotEmpty(t, a.HLO)
		require.Positive(t, a.CodeBytes)
		return a, out
	}
	first, out := get("1.5")
	require.True(t, out.Stored)
	second, hit := get("1.5")
	require.True(t, hit.Hit)
	require.Equal(t, out.Key, hit.Key)
	require.Equal(t, first, second)
	entries, err := cache.Entries()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	_, other := get("2.5")
	require.NotEqual(t, out.Key, other.Key)
	require.Equal(t, "not in the compile cache yet", other.Why)

	// Damage is told, of the program and of what is said about it, and mended.
	for _, key := range []string{out.Key, aboutKey(out.Key)} {
		raw, err := os.ReadFile(cache.file(key))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(cache.file(key), raw[:len(raw)-9], 0o600))
		again, outcome := get("1.5")
		require.True(t, outcome.Stored)
		require.Contains(t, outcome.Why, "the cached entry "+key)
		require.Contains(t, outcome.Why, "is unusable")
		require.Equal(t, first.Memory, again.Memory)
		_, hit := get("1.5")
		require.True(t, hit.Hit, hit.Why)
	}
}
