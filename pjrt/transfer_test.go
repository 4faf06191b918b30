package pjrt_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

var allTypes = []dtype.DType{dtype.Bool, dtype.S8, dtype.S16, dtype.S32, dtype.S64, dtype.U8, dtype.U16, dtype.U32, dtype.U64,
	dtype.F8E4M3, dtype.F8E5M2, dtype.F16, dtype.BF16, dtype.F32, dtype.F64}

// TestRoundTrip moves every element type to each device and back, under each of
// the semantics, with the collector at work.
func TestRoundTrip(t *testing.T) {
	c := xlatest.CPU(t)
	busyCollector(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, dt := range allTypes {
		for _, dims := range [][]int{{}, {0}, {7}, {3, 5}, {4, 0, 2}, {2, 3, 4, 5}} {
			n := dt.Size()
			for _, d := range dims {
				n *= d
			}
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(r.Uint32())
				if dt == dtype.Bool {
					data[i] &= 1
				}
			}
			for sem := pjrt.DuringCall; sem <= pjrt.MutableZeroCopy; sem++ {
				dev := c.LocalDevices()[r.IntN(8)]
				b, done, err := c.FromHost(bytes.Clone(data), dt, dims, dev, sem)
				require.NoError(t, err)
				require.Equal(t, dt, b.DType())
				require.Equal(t, dims, b.Dims())
				require.Same(t, dev, b.Device())
				require.Equal(t, n, b.Size())
				got := make([]byte, n)
				back, err := b.ToHost(got)
				require.NoError(t, err)
				require.NoError(t, back.Await())
				require.Equal(t, data, got, "%v%v semantics %d", dt, dims, sem)
				require.NoError(t, b.Close())
				require.NoError(t, done.Await(), "with zero copy the event follows Close")
			}
		}
	}
}

// TestHostOrder checks that the plugin heeds the layout, by asking for the
// opposite of the row-major one.
func TestHostOrder(t *testing.T) {
	c := xlatest.CPU(t)
	b := put(t, c, 0, []float32{0, 1, 2, 3, 4, 5}, 2, 3)
	defer func() { require.NoError(t, b.Close()) }()
	got := make([]float32, 6)
	require.NoError(t, b.ToHostOrder(pjrt.AsBytes(got), []int64{0, 1}))
	require.Equal(t, []float32{0, 3, 1, 4, 2, 5}, got)
	require.NoError(t, b.ToHostOrder(pjrt.AsBytes(got), []int64{1, 0}))
	require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, got)
}

func TestTransferMisuse(t *testing.T) {
	c := xlatest.CPU(t)
	other, err := c.Plugin().NewClient(pjrt.ClientOptions{Devices: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	topo, err := c.Topology()
	require.NoError(t, err)
	defer func() { require.NoError(t, topo.Close()) }()
	dev := c.LocalDevices()[0]
	var noDevice *pjrt.Device
	var noMemory *pjrt.Memory
	for want, f := range map[string]func() error{
		"takes 12 bytes, got 8":    func() error { _, err := c.Put(make([]byte, 8), dtype.F32, []int{3}, dev); return err },
		"negative dimension":       func() error { _, err := c.Put(nil, dtype.F32, []int{-1, 0}, dev); return err },
		"does not fit into memory": func() error { _, err := c.Put(nil, dtype.F32, []int{1 << 40, 1 << 40}, dev); return err },
		"no element type":          func() error { _, err := c.Put(nil, dtype.Invalid, []int{0}, dev); return err },
		"unknown host buffer semantics 9": func() error {
			_, _, err := c.FromHost(nil, dtype.F32, []int{0}, dev, 9)
			return err
		},
		"belongs to another client": func() error {
			_, err := c.Put(make([]byte, 4), dtype.F32, nil, other.LocalDevices()[0])
			return err
		},
		"or to a topology": func() error { _, err := c.Put(make([]byte, 4), dtype.F32, nil, topo.Devices()[0]); return err },
		"no device given":  func() error { _, err := c.Put(make([]byte, 4), dtype.F32, nil, nil); return err },
		"no device given ": func() error { _, err := c.Put(make([]byte, 4), dtype.F32, nil, noDevice); return err },
		"no memory given":  func() error { _, err := c.Put(make([]byte, 4), dtype.F32, nil, noMemory); return err },
	} {
		require.ErrorContains(t, f(), strings.TrimSpace(want))
	}
	b := put(t, c, 0, []float32{1, 2}, 2)
	_, err = b.ToHost(make([]byte, 4))
	require.ErrorContains(t, err, "takes 8 bytes, got 4")
	require.NoError(t, b.Delete())
	require.True(t, b.IsDeleted())
	_, err = b.Bytes()
	require.ErrorContains(t, err, "was deleted")
	require.NoError(t, b.Delete(), "deleting again")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	_, err = b.ToHost(make([]byte, 8))
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestCopyTo(t *testing.T) {
	c := xlatest.CPU(t)
	b := put(t, c, 0, []float32{1, 2, 3}, 3)
	b2, err := b.CopyTo(c.LocalDevices()[5])
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2, 3}, floats(t, b2))
	require.Same(t, c.LocalDevices()[5], b2.Device())
	mem := c.LocalDevices()[3].Memories()[0]
	b3, err := b2.CopyTo(mem)
	require.NoError(t, err)
	in, err := b3.Memory()
	require.NoError(t, err)
	require.Same(t, mem, in)
	require.NoError(t, b.Close())
	require.NoError(t, b2.Close())
	require.Equal(t, []float32{1, 2, 3}, floats(t, b3))
	require.NoError(t, b3.Close())
	_, err = b.CopyTo(mem)
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

// aligned returns n bytes of Go memory that plugins can use as they are.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	k := -int(uintptr(unsafe.Pointer(&b[0]))) & 63
	return b[k : k+n : k+n]
}

// TestZeroCopy: the buffer is the host's memory, stays valid though Go has
// dropped it, and is let go after Close.
func TestZeroCopy(t *testing.T) {
	c := xlatest.CPU(t)
	busyCollector(t)
	for range 20 {
		mem := aligned(1 << 20)
		for i := range mem {
			mem[i] = byte(i)
		}
		b, done, err := c.FromHost(mem, dtype.U8, []int{1 << 20}, c.LocalDevices()[0], pjrt.ZeroCopy)
		require.NoError(t, err)
		at, err := b.UnsafePointer()
		require.NoError(t, err)
		require.Equal(t, uintptr(unsafe.Pointer(&mem[0])), at, "no copy was made")
		mem = nil
		runtime.GC()
		require.False(t, done.IsReady())
		got, err := b.Bytes()
		require.NoError(t, err)
		for i := range got {
			if got[i] != byte(i) {
				t.Fatalf("byte %d is %d", i, got[i])
			}
		}
		require.NoError(t, b.Close())
		require.NoError(t, done.Await())
	}
	// Memory that is not Go's, such as a mapped file.
	mapped, err := syscall.Mmap(-1, 0, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	b, done, err := c.FromHost(mapped, dtype.U8, []int{1 << 16}, c.LocalDevices()[0], pjrt.ZeroCopy)
	require.NoError(t, err)
	at, err := b.UnsafePointer()
	require.NoError(t, err)
	require.Equal(t, uintptr(unsafe.Pointer(&mapped[0])), at)
	require.NoError(t, b.Close())
	require.NoError(t, done.Await())
	require.NoError(t, syscall.Munmap(mapped))

	mem := aligned(4096)[1:4001] // misaligned: copied
	b, done, err = c.FromHost(mem, dtype.U8, []int{4000}, c.LocalDevices()[0], pjrt.ZeroCopy)
	require.NoError(t, err)
	at, err = b.UnsafePointer()
	require.NoError(t, err)
	require.NotEqual(t, uintptr(unsafe.Pointer(&mem[0])), at)
	require.NoError(t, done.Await(), "a copy lets go at once")
	require.NoError(t, b.Close())
}

// TestZeroCopyDonation: donating a buffer that is host memory writes to that
// memory only where this was allowed.
func TestZeroCopyDonation(t *testing.T) {
	c := xlatest.CPU(t)
	x := compile(t, c, donateModule, sharded8)
	for _, sem := range []pjrt.Semantics{pjrt.ZeroCopy, pjrt.MutableZeroCopy} {
		args := donateArgs(t, c)
		mem := make([][]byte, 8)
		var events []*pjrt.Event
		for d := range args {
			require.NoError(t, args[d][0].Close())
			mem[d] = aligned(512)
			b, e, err := c.FromHost(mem[d], dtype.F32, []int{128}, c.LocalDevices()[d], sem)
			require.NoError(t, err)
			args[d][0] = b
			events = append(events, e)
		}
		outs := run(t, x, args)
		for d := range outs {
			require.Equal(t, float32(d+1), floats(t, outs[d][0])[0])
			require.Equal(t, sem == pjrt.ZeroCopy, bytes.Equal(mem[d], make([]byte, 512)), "semantics %d", sem)
		}
		closeAll(t, outs, args)
		for _, e := range events {
			require.NoError(t, e.Await())
		}
	}
}

// TestDroppedEvents: forgetting the event of a transfer that pins memory harms
// nothing.
func TestDroppedEvents(t *testing.T) {
	c := xlatest.CPU(t)
	for range 50 {
		b, _, err := c.FromHost(aligned(4096), dtype.U8, []int{4096}, c.LocalDevices()[0], pjrt.ZeroCopy)
		require.NoError(t, err)
		_, err = b.ToHost(make([]byte, 4096))
		require.NoError(t, err)
		require.NoError(t, b.Close())
		runtime.GC()
	}
	for pjrt.LiveObjects()["event"] > 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestForgotten: what is forgotten without Close is closed by the collector, and
// counted.
func TestForgotten(t *testing.T) {
	c := xlatest.CPU(t)
	before, forgotten := pjrt.CollectedObjects(), 0
	forget := func() {
		b := put(t, c, 0, make([]float32, 1024), 1024)
		x, err := c.Compile([]byte(addModule), pjrt.CompileOptions{})
		require.NoError(t, err)
		runtime.KeepAlive(b)
		runtime.KeepAlive(x)
		forgotten += 3 // a loaded executable has two handles
	}
	for range 5 {
		forget()
	}
	for range 1000 {
		runtime.GC()
		if pjrt.CollectedObjects() == before+forgotten {
			return
		}
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, before+forgotten, pjrt.CollectedObjects())
}
