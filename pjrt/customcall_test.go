package pjrt_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

// handlers are what registered custom calls run; a name is registered once in a
// process, also if its test runs again.
var handlers sync.Map

func register(t *testing.T, c *pjrt.Client, name string, h pjrt.CustomCallHandler) {
	t.Helper()
	if _, again := handlers.Swap(name, h); again {
		return
	}
	require.NoError(t, c.Plugin().RegisterCustomCall(name, func(call *pjrt.CustomCall) error {
		h, _ := handlers.Load(name)
		return h.(pjrt.CustomCallHandler)(call)
	}))
}

// reduce is an 8-way all-reduce in Go, entered by 8 threads of XLA at once.
var reduce struct {
	sync.Mutex
	mode    atomic.Int32 // 0 reduce, 1 error, 2 panic, 3 nil dereference
	sum     []float32
	n       int
	release chan struct{}
}

func reduceHandler(call *pjrt.CustomCall) error {
	dev, err := call.Device()
	if err != nil {
		return err
	}
	if tag := call.Attributes()["tag"]; tag != "sum" {
		return fmt.Errorf("tag is %v", tag)
	}
	switch m := reduce.mode.Load(); {
	case m == 1 && dev == 3:
		return &pjrt.Error{Code: pjrt.Unavailable, Message: "peer lost"}
	case m == 2 && dev == 3:
		panic("deliberate")
	case m == 3 && dev == 3:
		var p *int
		*p = 1
	case m != 0:
		return nil
	}
	in, out := pjrt.Slice[float32](call.Args[0]), pjrt.Slice[float32](call.Results[0])
	stackAndHeap(100)
	reduce.Lock()
	if reduce.n == 0 {
		reduce.sum, reduce.release = make([]float32, len(in)), make(chan struct{})
	}
	for i, v := range in {
		reduce.sum[i] += v
	}
	reduce.n++
	sum, release := reduce.sum, reduce.release
	if reduce.n == 8 {
		reduce.n = 0
		close(release)
	}
	reduce.Unlock()
	<-release // all 8 threads are inside Go here
	copy(out, sum)
	return nil
}

const reduceModule = `module @reduce { sdy.mesh @mesh = <["d"=8]>
func.func public @main(%a: tensor<32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> (tensor<32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
 %r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"d"}]>] out_shardings=[<@mesh, [{"d"}]>] manual_axes={"d"} (%l: tensor<4xf32>) {
  %x = stablehlo.custom_call @test_reduce(%l) {api_version = 4 : i32, backend_config = {tag = "sum"}, has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  sdy.return %x : tensor<4xf32> } : (tensor<32xf32>) -> tensor<32xf32>
 return %r : tensor<32xf32> } }`

func TestCustomCall(t *testing.T) {
	c := xlatest.CPU(t)
	register(t, c, "test_reduce", reduceHandler)
	exe := compile(t, c, reduceModule, sharded8)
	args := make([][]*pjrt.Buffer, 8)
	for d := range args {
		args[d] = []*pjrt.Buffer{put(t, c, d, []float32{float32(d), 1, 2, 3}, 4)}
	}
	busyCollector(t)
	steps := 300
	if testing.Short() {
		steps = 50
	}
	for i := range steps {
		outs := run(t, exe, args)
		if i%50 == 0 {
			for d := range outs {
				require.Equal(t, []float32{28, 8, 16, 24}, floats(t, outs[d][0]))
			}
		}
		closeAll(t, outs)
	}
	for mode, want := range map[int32]string{1: "peer lost", 2: "panic in custom call test_reduce: deliberate", 3: "nil pointer"} {
		reduce.mode.Store(mode)
		outs, err := exe.Run(args, pjrt.ExecuteOptions{})
		require.ErrorContains(t, err, want)
		require.Nil(t, outs)
		var e *pjrt.Error
		require.True(t, errors.As(err, &e))
		if mode == 1 {
			require.Equal(t, pjrt.Unavailable, e.Code)
		}
	}
	reduce.mode.Store(0)
	closeAll(t, run(t, exe, args), args)
}

// TestCustomCallTypes hands over arrays of every element type and attributes of
// every kind.
func TestCustomCallTypes(t *testing.T) {
	c := xlatest.CPU(t)
	var seen atomic.Pointer[map[string]any]
	var dims atomic.Pointer[[]int]
	register(t, c, "test_types", func(call *pjrt.CustomCall) error {
		m := call.Attributes()
		seen.Store(&m)
		dims.Store(&call.Args[0].Dims)
		if call.Args[0].DType != call.Results[0].DType {
			return errors.New("types differ")
		}
		copy(call.Results[0].Data, call.Args[0].Data)
		return nil
	})
	for _, dt := range allTypes {
		program := fmt.Sprintf(`module @types { func.func public @main(%%a: tensor<3x2x%[1]s>) -> tensor<3x2x%[1]s> {
 %%r = stablehlo.custom_call @test_types(%%a) {api_version = 4 : i32, backend_config = {
  s = "text", b = true, i8 = -3 : i8, i32 = 7 : i32, i64 = 77 : i64, u8 = 200 : ui8, u64 = 18446744073709551615 : ui64, f32 = 0.5 : f32, f64 = 0.25 : f64,
  ai = array<i64: 1, -2>, au = array<i8: 1, -1>, af = array<f32: 0.5, 1.5>, d = {x = 1 : i32, y = "z"}}} : (tensor<3x2x%[1]s>) -> tensor<3x2x%[1]s>
 return %%r : tensor<3x2x%[1]s> } }`, dt.StableHLO())
		exe := compile(t, c, program, pjrt.CompileOptions{})
		data, err := dtype.FromFloat32(dt, []float32{0, 1, 1, 0, 1, 0})
		require.NoError(t, err)
		in, err := c.Put(data, dt, []int{3, 2}, c.LocalDevices()[0])
		require.NoError(t, err)
		outs := run(t, exe, [][]*pjrt.Buffer{{in}})
		got, err := outs[0][0].Bytes()
		require.NoError(t, err)
		require.Equal(t, data, got, dt)
		require.Equal(t, []int{3, 2}, *dims.Load())
		require.Equal(t, map[string]any{
			"s": "text", "b": true, "i8": int64(-3), "i32": int64(7), "i64": int64(77), "u8": uint64(200), "u64": uint64(1<<64 - 1),
			"f32": 0.5, "f64": 0.25, "ai": []int64{1, -2}, "au": []int64{1, -1}, "af": []float64{0.5, 1.5},
			"d": map[string]any{"x": int64(1), "y": "z"},
		}, *seen.Load())
		closeAll(t, outs, [][]*pjrt.Buffer{{in}})
	}
}

func TestCustomCallMisuse(t *testing.T) {
	c := xlatest.CPU(t)
	p := c.Plugin()
	nop := func(*pjrt.CustomCall) error { return nil }
	require.ErrorContains(t, p.RegisterCustomCall("", nop), "no name or no handler")
	require.ErrorContains(t, p.RegisterCustomCall("x", nil), "no name or no handler")
	register(t, c, "test_again", nop)
	require.ErrorContains(t, p.RegisterCustomCall("test_again", nop), `a custom call "test_again" is registered already`)
	require.Nil(t, pjrt.Slice[float32](pjrt.CustomCallArray{DType: dtype.BF16, Data: make([]byte, 8)}), "another element size")
	require.Len(t, pjrt.Slice[uint16](pjrt.CustomCallArray{DType: dtype.BF16, Data: make([]byte, 8)}), 4)
}
