package pjrt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

func TestOpen(t *testing.T) {
	p := xlatest.CPU(t).Plugin()
	major, minor := p.APIVersion()
	require.Zero(t, major)
	require.Greater(t, minor, 100)
	require.Contains(t, p.Attributes(), "stablehlo_current_version")
	require.True(t, filepath.IsAbs(p.Path()))

	again, err := pjrt.Open(p.Path())
	require.NoError(t, err)
	require.Same(t, p, again)
	link := filepath.Join(t.TempDir(), "plugin.so")
	require.NoError(t, os.Symlink(p.Path(), link))
	again, err = pjrt.Open(link)
	require.NoError(t, err)
	require.Same(t, p, again, "one library is loaded once, whatever its name")
}

func TestOpenRefuses(t *testing.T) {
	plugin := xlatest.CPU(t).Plugin().Path()
	dir := t.TempDir()
	text, cut, head := filepath.Join(dir, "text.so"), filepath.Join(dir, "cut.so"), filepath.Join(dir, "head.so")
	f, err := os.Open(plugin)
	require.NoError(t, err)
	defer f.Close()
	start := make([]byte, 1<<20)
	_, err = f.ReadAt(start, 0)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cut, start, 0o644)) // loading it would end this process
	require.NoError(t, os.WriteFile(head, start[:20], 0o644))
	require.NoError(t, os.WriteFile(text, []byte("not a library"), 0o644))
	for path, want := range map[string]string{
		"":                                  "no path given",
		filepath.Join(dir, "missing.so"):    "no such file",
		dir:                                 "is no file",
		text:                                "text.so is not a loadable library",
		cut:                                 "cut.so is truncated: it has 1048576 bytes",
		head:                                "head.so is truncated: it has 20 bytes",
		"/lib/x86_64-linux-gnu/libm.so.6":   "does not export GetPjrtApi",
		"/lib/aarch64-linux-gnu/libm.so.6":  "does not export GetPjrtApi",
		filepath.Join(text, "below", "x.y"): "not a directory",
	} {
		if _, err := os.Stat(path); err != nil && want == "does not export GetPjrtApi" {
			continue // another system
		}
		_, err := pjrt.Open(path)
		require.ErrorContains(t, err, want, path)
	}
}

func TestClient(t *testing.T) {
	c := xlatest.CPU(t)
	require.Equal(t, "cpu", c.Platform())
	require.NotEmpty(t, c.PlatformVersion())
	require.Zero(t, c.ProcessIndex())
	require.Len(t, c.Devices(), 8)
	require.Equal(t, c.Devices(), c.LocalDevices())
	for i, d := range c.LocalDevices() {
		require.Equal(t, i, d.ID)
		require.Equal(t, "cpu", d.Kind)
		require.True(t, d.IsLocal())
		require.GreaterOrEqual(t, d.LocalHardwareID, 0)
		_, err := d.Attributes()
		require.NoError(t, err)
		same, err := c.Device(d.ID)
		require.NoError(t, err)
		require.Same(t, d, same)
		_, err = d.MemoryStats()
		require.True(t, pjrt.IsUnimplemented(err), "the CPU plugin has none: %v", err)
	}
	_, err := c.Device(8)
	require.ErrorContains(t, err, "no device with id 8")
}

func TestMemories(t *testing.T) {
	c := xlatest.CPU(t)
	d := c.LocalDevices()[2]
	require.NotEmpty(t, d.Memories())
	_, err := d.Memory("tape")
	require.ErrorContains(t, err, `no memory of kind "tape"; it has ["`)
	for _, m := range d.Memories() {
		same, err := d.Memory(m.Kind)
		require.NoError(t, err)
		require.Same(t, m, same)
		require.Same(t, d, m.Device())
		b, err := c.Put([]byte{1, 2, 3, 4}, dtype.U8, []int{4}, m)
		require.NoError(t, err)
		require.Same(t, d, b.Device())
		in, err := b.Memory()
		require.NoError(t, err)
		require.Same(t, m, in)
		data, err := b.Bytes()
		require.NoError(t, err)
		require.Equal(t, []byte{1, 2, 3, 4}, data)
		require.NoError(t, b.Close())
	}
	b := put(t, c, 2, []float32{1})
	in, err := b.Memory()
	require.NoError(t, err)
	require.Same(t, d.Memories()[0], in, "the default memory comes first")
	require.NoError(t, b.Close())
}

func TestClientOptions(t *testing.T) {
	p := xlatest.CPU(t).Plugin()
	for want, o := range map[string]pjrt.ClientOptions{
		"no_such_option":   {Extra: map[string]any{"no_such_option": 1}},
		"-3 devices":       {Devices: -3},
		"both Devices and": {Devices: 2, Extra: map[string]any{"cpu_device_count": 3}},
		"unsupported type": {Extra: map[string]any{"x": struct{}{}}},
	} {
		_, err := p.NewClient(o)
		require.ErrorContains(t, err, want)
	}
	c, err := p.NewClient(pjrt.ClientOptions{Extra: map[string]any{"cpu_device_count": 3}})
	require.NoError(t, err)
	require.Len(t, c.Devices(), 3)
	require.NoError(t, c.Close())
}

// TestCloseClient: a client with children does not close, and everything of a
// closed client is an error.
func TestCloseClient(t *testing.T) {
	c, err := xlatest.CPU(t).Plugin().NewClient(pjrt.ClientOptions{Devices: 2})
	require.NoError(t, err)
	b := put(t, c, 0, []float32{1})
	x, err := c.Compile([]byte(addModule), pjrt.CompileOptions{})
	require.NoError(t, err)
	topo, err := c.Topology()
	require.NoError(t, err)
	require.ErrorContains(t, c.Close(), "still has 1 topology, 1 executable, 1 loaded executable, 1 buffer: close them first")
	require.NoError(t, topo.Close())
	require.NoError(t, x.Close())
	require.ErrorContains(t, c.Close(), "still has 1 buffer")
	_, err = b.Bytes()
	require.NoError(t, err, "the refused Close changed nothing")
	require.NoError(t, b.Close())
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "closing again")

	dev := c.LocalDevices()[0]
	uses := map[string]func() error{
		"Put":         func() error { _, err := c.Put(make([]byte, 4), dtype.F32, nil, dev); return err },
		"Compile":     func() error { _, err := c.Compile([]byte(addModule), pjrt.CompileOptions{}); return err },
		"Load":        func() error { _, err := c.Load([]byte("x")); return err },
		"Topology":    func() error { _, err := c.Topology(); return err },
		"Attributes":  func() error { _, err := dev.Attributes(); return err },
		"MemoryStats": func() error { _, err := dev.MemoryStats(); return err },
		"Bytes":       func() error { _, err := b.Bytes(); return err },
		"Size":        func() error { _, err := b.OnDeviceSize(); return err },
		"Pointer":     func() error { _, err := b.UnsafePointer(); return err },
		"Memory":      func() error { _, err := b.Memory(); return err },
		"Delete":      func() error { return b.Delete() },
		"Ready":       func() error { _, err := b.Ready(); return err },
		"CopyTo":      func() error { _, err := b.CopyTo(dev); return err },
		"Execute":     func() error { _, _, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{}); return err },
		"Run":         func() error { _, err := x.Run([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{}); return err },
		"Stats":       func() error { _, err := x.MemoryStats(); return err },
		"Cost":        func() error { _, err := x.CostAnalysis(); return err },
		"Optimized":   func() error { _, _, err := x.OptimizedProgram(); return err },
		"HLO":         func() error { _, err := x.OptimizedHLO(); return err },
		"Parameters":  func() error { _, err := x.Parameters(); return err },
		"Outputs":     func() error { _, err := x.Outputs(); return err },
		"Kinds":       func() error { _, err := x.OutputMemoryKinds(); return err },
		"Serialize":   func() error { _, err := x.Serialize(); return err },
		"Fingerprint": func() error { _, err := x.Fingerprint(); return err },
		"Replicas":    func() error { _, err := x.Replicas(); return err },
		"TopoCompile": func() error { _, err := topo.Compile([]byte(addModule), pjrt.CompileOptions{}); return err },
		"TopoAttrs":   func() error { _, err := topo.Attributes(); return err },
	}
	for name, use := range uses {
		require.ErrorIs(t, use(), pjrt.ErrClosed, name)
	}
	require.True(t, b.IsDeleted())
}

// TestCPUTopology compiles for the devices of a client without loading, and
// loads the result.
func TestCPUTopology(t *testing.T) {
	c := xlatest.CPU(t)
	topo, err := c.Topology()
	require.NoError(t, err)
	defer func() { require.NoError(t, topo.Close()) }()
	require.Len(t, topo.Devices(), 8)
	require.Equal(t, "cpu", topo.Platform())
	x, err := topo.Compile([]byte(testdata(t, "shardy")), sharded8)
	require.NoError(t, err)
	require.ErrorContains(t, topo.Close(), "still has 1 executable")
	m, err := x.MemoryStats()
	require.NoError(t, err)
	require.EqualValues(t, (2*64+8*32)*4, m.Args)
	params, err := x.Parameters()
	require.NoError(t, err)
	require.Equal(t, "f32[2 64]", params[0].String())
	blob, err := x.Serialize()
	require.NoError(t, err)
	require.NoError(t, x.Close())
	_, err = x.MemoryStats()
	require.ErrorIs(t, err, pjrt.ErrClosed)
	loaded, err := c.Load(blob)
	require.NoError(t, err)
	require.Equal(t, c.LocalDevices(), loaded.Devices())
	require.NoError(t, loaded.Close())
}
