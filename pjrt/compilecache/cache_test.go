package compilecache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

// program is x + c over n devices; x is donated.
func program(c string, devices int) []byte {
	return fmt.Appendf(nil, `module @plus {
  sdy.mesh @mesh = <["d"=%d]>
  func.func public @main(%%x: tensor<%dxf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>, tf.aliasing_output = 0 : i32}) -> (tensor<%[2]dxf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}, tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %%c = stablehlo.constant dense<%s> : tensor<%[2]dxf32>
    %%y = stablehlo.add %%x, %%c : tensor<%[2]dxf32>
    %%z = stablehlo.constant dense<0.0> : tensor<f32>
    %%s = stablehlo.reduce(%%y init: %%z) applies stablehlo.add across dimensions = [0] : (tensor<%[2]dxf32>, tensor<f32>) -> tensor<f32>
    return %%y, %%s : tensor<%[2]dxf32>, tensor<f32>
  }
}`, devices, 2*devices, c)
}

func options(devices int) pjrt.CompileOptions {
	return pjrt.CompileOptions{Partitions: devices, Shardy: true}
}

// get compiles through the cache and checks what the program computes.
func get(t *testing.T, c *Cache, devices int) Outcome {
	t.Helper()
	exe, out, err := c.Compile(xlatest.CPU(t), program("1.5", devices), options(devices))
	require.NoError(t, err)
	defer func() { require.NoError(t, exe.Close()) }()
	args := make([][]*pjrt.Buffer, devices)
	for d := range args {
		b, err := exe.Client().Put(pjrt.AsBytes([]float32{float32(d), 2}), dtype.F32, []int{2}, exe.Devices()[d])
		require.NoError(t, err)
		args[d] = []*pjrt.Buffer{b}
	}
	outs, err := exe.Run(args, pjrt.ExecuteOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, pjrt.CloseBuffers(append(outs, args...)...)) }()
	sum := float32(0)
	for d := range outs {
		require.True(t, args[d][0].IsDeleted(), "the argument was donated")
		y, err := outs[d][0].Bytes()
		require.NoError(t, err)
		require.Equal(t, pjrt.AsBytes([]float32{float32(d) + 1.5, 3.5}), y)
		sum += float32(d) + 5
	}
	s, err := outs[0][1].Bytes()
	require.NoError(t, err)
	require.Equal(t, pjrt.AsBytes([]float32{sum}), s)
	return out
}

// only returns the one file of the cache.
func only(t *testing.T, c *Cache) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "*"+suffix))
	require.NoError(t, err)
	require.Len(t, files, 1)
	temps, err := filepath.Glob(filepath.Join(c.dir, tempPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, temps)
	return files[0]
}

func TestSecondCompilationIsLoaded(t *testing.T) {
	for _, devices := range []int{1, 8} {
		dir := filepath.Join(t.TempDir(), "made", "when", "needed")
		first := get(t, Open(dir), devices)
		require.False(t, first.Hit)
		require.True(t, first.Stored)
		require.Equal(t, "not in the compile cache yet", first.Why)
		require.Positive(t, first.CompileTime)
		require.Zero(t, first.LoadTime)
		second := get(t, Open(dir), devices)
		require.True(t, second.Hit)
		require.False(t, second.Stored)
		require.Empty(t, second.Why)
		require.Positive(t, second.LoadTime)
		require.Zero(t, second.CompileTime)
		require.Equal(t, first.Bytes, second.Bytes)
		require.Equal(t, first.Key, second.Key)
		require.Contains(t, second.String(), "loaded from the compile cache")
		require.Contains(t, first.String(), "stored in the compile cache")
	}
}

// Everything that can be asked of a program is the same for a loaded one.
func TestLoadedEqualsCompiled(t *testing.T) {
	cache := Open(t.TempDir())
	ask := func() []any {
		exe, _, err := cache.Compile(xlatest.CPU(t), program("2.5", 4), options(4))
		require.NoError(t, err)
		defer func() { require.NoError(t, exe.Close()) }()
		var all []any
		add := func(x any, err error) {
			require.NoError(t, err)
			all = append(all, x)
		}
		all = append(all, exe.Name(), exe.NumOutputs(), exe.Devices())
		add(exe.Replicas())
		add(exe.Partitions())
		add(exe.MemoryStats())
		add(exe.Fingerprint())
		add(exe.Parameters())
		add(exe.Outputs())
		add(exe.OutputMemoryKinds())
		m, err := exe.OptimizedHLO()
		require.NoError(t, err)
		return append(all, m.Text(), m.Aliases, m.Donated())
	}
	compiled := ask()
	require.Equal(t, compiled, ask())
	require.Positive(t, compiled[5].(pjrt.MemoryStats).Alias)
}

// What is different is another entry.
func TestKey(t *testing.T) {
	c, cache := xlatest.CPU(t), Open(t.TempDir())
	keys := map[string]string{}
	add := func(name string, code []byte, o pjrt.CompileOptions) {
		k, err := cache.key(c, code, o)
		require.NoError(t, err)
		for other, key := range keys {
			require.NotEqual(t, key, k, "%s and %s", name, other)
		}
		keys[name] = k
	}
	p, o := program("1.0", 2), options(2)
	with := func(change func(*pjrt.CompileOptions)) pjrt.CompileOptions {
		o := options(2)
		change(&o)
		return o
	}
	add("base", p, o)
	add("program", program("2.0", 2), o)
	add("a space more", append(bytes.Clone(p), ' '), o)
	add("replicas", p, with(func(o *pjrt.CompileOptions) { o.Replicas = 2 }))
	add("partitions", p, with(func(o *pjrt.CompileOptions) { o.Partitions = 4 }))
	add("no shardy", p, with(func(o *pjrt.CompileOptions) { o.Shardy = false }))
	add("devices", p, with(func(o *pjrt.CompileOptions) { o.DeviceIDs = []int{1, 0} }))
	add("level", p, with(func(o *pjrt.CompileOptions) { o.OptLevel = pjrt.LevelO1 }))
	add("fitting", p, with(func(o *pjrt.CompileOptions) { o.MemoryFittingLevel = pjrt.LevelO1 }))
	for _, v := range []any{1, true, 1.0, "1", "true"} {
		add(fmt.Sprintf("flag %T %v", v, v), p, with(func(o *pjrt.CompileOptions) { o.Flags = map[string]any{"a": v} }))
	}
	add("flag name", p, with(func(o *pjrt.CompileOptions) { o.Flags = map[string]any{"b": 1} }))
	for _, name := range environment {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "--x")
			add(name, p, o)
		})
	}
	real := processor
	processor = func() string { return "another" }
	add("processor", p, o)
	processor = real

	fewer, err := c.Plugin().NewClient(pjrt.ClientOptions{Devices: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, fewer.Close()) }()
	c = fewer
	add("devices of the client", p, o)
	c = xlatest.CPU(t)
	again, err := cache.key(c, p, o)
	require.NoError(t, err)
	require.Equal(t, keys["base"], again)
}

// Options that change what is compiled are compiled, not loaded.
func TestOtherOptionsMiss(t *testing.T) {
	cache := Open(t.TempDir())
	require.False(t, get(t, cache, 2).Hit)
	o := options(2)
	o.DeviceIDs = []int{5, 3}
	exe, out, err := cache.Compile(xlatest.CPU(t), program("1.5", 2), o)
	require.NoError(t, err)
	require.False(t, out.Hit)
	require.Equal(t, 5, exe.Devices()[0].ID)
	require.NoError(t, exe.Close())
	exe, out, err = cache.Compile(xlatest.CPU(t), program("1.5", 2), o)
	require.NoError(t, err)
	require.True(t, out.Hit)
	require.Equal(t, []int{5, 3}, []int{exe.Devices()[0].ID, exe.Devices()[1].ID})
	require.NoError(t, exe.Close())
}

// A damaged entry never reaches the plugin: it is compiled anew and replaced.
func TestDamagedEntries(t *testing.T) {
	cache := Open(t.TempDir())
	first := get(t, cache, 2)
	path := only(t, cache)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	zeros := bytes.Clone(whole)
	clear(zeros[len(zeros)/2:])
	damage := map[string][]byte{
		"empty":         nil,
		"magic only":    whole[:8],
		"another file":  []byte(strings.Repeat("no executable\n", 1000)),
		"doubled":       slices.Concat(whole, whole),
		"last byte off": whole[:len(whole)-1],
		"zeros":         zeros,
	}
	for i := range 12 {
		damage[fmt.Sprintf("cut %d", i)] = whole[:r.IntN(len(whole))]
		bit := bytes.Clone(whole)
		at := r.IntN(len(bit))
		if i < 6 {
			at = r.IntN(headerAt + 300) // the header, too
		}
		bit[at] ^= 1 << r.IntN(8)
		damage[fmt.Sprintf("bit %d", i)] = bit
	}
	for name, d := range damage {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, d, 0o600))
			out := get(t, cache, 2)
			require.False(t, out.Hit)
			require.True(t, out.Stored, out.Why)
			require.Contains(t, out.Why, "is unusable")
			require.Equal(t, first.Key, out.Key)
			require.True(t, get(t, cache, 2).Hit, "it was replaced")
		})
	}
	only(t, cache)
}

// An entry under another's name, and one whose bytes the plugin refuses although
// nothing is damaged.
func TestForeignEntries(t *testing.T) {
	cache := Open(t.TempDir())
	out := get(t, cache, 2)
	path := only(t, cache)
	exe, _, err := cache.Compile(xlatest.CPU(t), program("7.0", 2), options(2))
	require.NoError(t, err)
	require.NoError(t, exe.Close())
	entries, err := cache.Entries()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	other := entries[0]
	if other.Key == out.Key {
		other = entries[1]
	}
	require.NoError(t, os.Rename(cache.file(other.Key), path))
	out = get(t, cache, 2)
	require.Contains(t, out.Why, "it is the entry "+other.Key)
	require.True(t, out.Stored)

	head, _, err := readEntry(path, out.Key)
	require.NoError(t, err)
	for name, change := range map[string]func() []byte{
		"no program": func() []byte {
			b, err := encodeEntry(head, []byte("not a program"))
			require.NoError(t, err)
			return b
		},
		"another program": func() []byte {
			_, blob, err := readEntry(path, out.Key)
			require.NoError(t, err)
			h := head
			h.Outputs = 3
			b, err := encodeEntry(h, blob)
			require.NoError(t, err)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, change(), 0o600))
			out := get(t, cache, 2)
			require.False(t, out.Hit)
			require.Contains(t, out.Why, "could not be loaded")
			require.True(t, get(t, cache, 2).Hit)
		})
	}
}

// A cache that cannot be used costs the caching only, and leaves nothing behind.
func TestUnusableFolders(t *testing.T) {
	notAFolder := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notAFolder, nil, 0o600))
	for range 2 {
		out := get(t, Open(notAFolder), 1)
		require.False(t, out.Hit || out.Stored)
		require.Contains(t, out.Why, "not a directory")
		out = get(t, Open(""), 1)
		require.Equal(t, "the compile cache is off", out.Why)
		require.Empty(t, out.Key)
	}
	cache := Open(t.TempDir())
	key := get(t, Open(t.TempDir()), 1).Key
	require.NoError(t, os.MkdirAll(filepath.Join(cache.file(key), "in the way"), 0o700))
	out := get(t, cache, 1)
	require.False(t, out.Stored)
	require.Contains(t, out.Why, "not stored")
	temps, err := filepath.Glob(filepath.Join(cache.dir, tempPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, temps)

	_, out, err = cache.Compile(xlatest.CPU(t), []byte("no program"), pjrt.CompileOptions{})
	require.Error(t, err)
	require.False(t, out.Stored)
}

const childVar = "TITAN_TEST_COMPILECACHE_CHILD"

// TestChild is a process of TestProcesses.
func TestChild(t *testing.T) {
	dir := os.Getenv(childVar)
	if dir == "" {
		t.Skip("runs in a process of its own")
	}
	cache := Open(dir)
	for n := range 6 {
		out := get(t, cache, 1+n%2)
		require.True(t, out.Hit || out.Stored, out.Why)
		require.NotContains(t, out.Why, "unusable")
		if n%3 == 2 {
			_, _, err := cache.Clear() // others may be reading
			require.NoError(t, err)
		}
	}
}

// Processes that fill, use and clear one folder at once all get their programs.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	var cmds []*exec.Cmd
	var logs []*strings.Builder
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
		cmd.Env = append(os.Environ(), childVar+"="+dir)
		log := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = log, log
		require.NoError(t, cmd.Start())
		cmds, logs = append(cmds, cmd), append(logs, log)
	}
	for i, cmd := range cmds {
		require.NoError(t, cmd.Wait(), "%s", logs[i])
	}
	get(t, Open(dir), 1)
	require.True(t, get(t, Open(dir), 1).Hit)
}
