package pjrt_test

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

// TestSharded runs the same product three ways over 8 devices (GSPMD, Shardy, a
// manual region) and compares with the product computed here.
func TestSharded(t *testing.T) {
	c := xlatest.CPU(t)
	x, w := sines(16*64, 1), sines(64*32, .3)
	y, loss := make([]float64, 16*32), 0.0
	for i := range 16 {
		for j := range 32 {
			for k := range 64 {
				y[i*32+j] += float64(x[i*64+k]) * float64(w[k*32+j])
			}
			loss += y[i*32+j] * y[i*32+j]
		}
	}
	for _, name := range []string{"gspmd", "shardy", "manual"} {
		t.Run(name, func(t *testing.T) {
			exe := compile(t, c, testdata(t, name), pjrt.CompileOptions{Partitions: 8, Shardy: name != "gspmd"})
			args := make([][]*pjrt.Buffer, 8)
			for d := range args {
				args[d] = []*pjrt.Buffer{put(t, c, d, x[d*128:(d+1)*128], 2, 64), put(t, c, d, w[d*256:(d+1)*256], 8, 32)}
			}
			outs := run(t, exe, args)
			worst := 0.0
			for d := range outs {
				g, l := floats(t, outs[d][0]), floats(t, outs[d][1])
				worst = max(worst, math.Abs(float64(l[0])-loss)/loss)
				for a := range 8 {
					for j := range 32 {
						r := 0.0
						for i := range 16 {
							r += float64(x[i*64+d*8+a]) * y[i*32+j]
						}
						worst = max(worst, math.Abs(r-float64(g[a*32+j])))
					}
				}
				require.Equal(t, []int{8, 32}, outs[d][0].Dims())
				require.Equal(t, dtype.F32, outs[d][0].DType())
				require.Same(t, c.LocalDevices()[d], outs[d][0].Device())
				n, err := outs[d][0].OnDeviceSize()
				require.NoError(t, err)
				require.Equal(t, 8*32*4, n)
			}
			require.Less(t, worst, 1e-4)
			closeAll(t, args, outs)
		})
	}
}

// TestDonation runs thousands of donating steps on 8 devices from two
// goroutines while the collector is busy, and checks addresses and values.
func TestDonation(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, donateModule, sharded8)
	busyCollector(t)
	steps := 1500
	if testing.Short() {
		steps = 100
	}
	var wg sync.WaitGroup
	for range 2 {
		args := donateArgs(t, c)
		wg.Go(func() {
			for i := range steps {
				addr, err := args[5][0].UnsafePointer()
				if err != nil {
					t.Error(err)
					return
				}
				outs, err := exe.Run(args, pjrt.ExecuteOptions{LaunchID: i})
				if err != nil {
					t.Error(err)
					return
				}
				if now, err := outs[5][0].UnsafePointer(); now != addr || err != nil || !args[5][0].IsDeleted() {
					t.Error("not donated in place: ", err)
					return
				}
				for d := range args {
					if err := args[d][0].Close(); err != nil {
						t.Error(err)
						return
					}
					args[d][0] = outs[d][0]
				}
			}
			for d := range args {
				data, err := args[d][0].Bytes()
				if err != nil {
					t.Error(err)
					return
				}
				for _, x := range (xlatest.Array{DType: dtype.F32, Data: data}).Float32s() {
					if x != float32((d+1)*steps) {
						t.Errorf("device %d: %v after %d steps", d, x, steps)
						return
					}
				}
			}
			if err := pjrt.CloseBuffers(args...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNonDonatable(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, donateModule, sharded8)
	args := donateArgs(t, c)
	outs, err := exe.Run(args, pjrt.ExecuteOptions{NonDonatable: []int{0}})
	require.NoError(t, err)
	require.False(t, args[0][0].IsDeleted())
	require.Equal(t, float32(0), floats(t, args[0][0])[0])
	closeAll(t, outs)
	outs = run(t, exe, args)
	require.True(t, args[0][0].IsDeleted())
	closeAll(t, outs, args)
	for _, bad := range []int{-1, 2} {
		_, err = exe.Run(donatedArgs(t, c), pjrt.ExecuteOptions{NonDonatable: []int{bad}})
		require.ErrorContains(t, err, "NonDonatable lists argument")
	}
}

// donatedArgs are arguments that are closed when the test ends.
func donatedArgs(t *testing.T, c *pjrt.Client) [][]*pjrt.Buffer {
	args := donateArgs(t, c)
	t.Cleanup(func() { closeAll(t, args) })
	return args
}

// TestMisuse: every wrong argument list is refused with a message that names the
// argument, and refusing changes nothing.
func TestMisuse(t *testing.T) {
	c := xlatest.CPU(t)
	other, err := c.Plugin().NewClient(pjrt.ClientOptions{Devices: 8})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	exe := compile(t, c, donateModule, sharded8)
	good := donatedArgs(t, c)
	foreign := donateArgs(t, other)
	defer closeAll(t, foreign)
	closed := put(t, c, 3, make([]float32, 128), 128)
	require.NoError(t, closed.Close())
	deleted := put(t, c, 3, make([]float32, 128), 128)
	require.NoError(t, deleted.Delete())
	defer deleted.Close()
	small := put(t, c, 3, make([]float32, 64), 64)
	defer small.Close()
	square := put(t, c, 3, make([]float32, 128), 2, 64)
	defer square.Close()
	ints, err := c.Put(make([]byte, 512), dtype.S32, []int{128}, c.LocalDevices()[3])
	require.NoError(t, err)
	defer ints.Close()

	with := func(d, i int, b *pjrt.Buffer) [][]*pjrt.Buffer {
		args := make([][]*pjrt.Buffer, 8)
		for k := range args {
			args[k] = append([]*pjrt.Buffer(nil), good[k]...)
		}
		args[d][i] = b
		return args
	}
	ragged := with(0, 0, good[0][0])
	ragged[4] = ragged[4][:1]
	for want, args := range map[string][][]*pjrt.Buffer{
		"donate: arguments for 0 devices, the program runs on 8":                             nil,
		"arguments for 7 devices":                                                            good[:7],
		"1 arguments for cpu device 4, want 2":                                               ragged,
		"argument 1 on cpu device 3: no buffer":                                              with(3, 1, nil),
		"belongs to another client":                                                          with(3, 0, foreign[3][0]),
		"argument 0 on cpu device 3: buffer f32[128] on cpu device 4 is on the wrong device": with(3, 0, good[4][0]),
		"buffer f32[64] on cpu device 3, want f32[128]":                                      with(3, 0, small),
		"buffer f32[2 64] on cpu device 3, want f32[128]":                                    with(3, 1, square),
		"buffer s32[128] on cpu device 3, want f32[128]":                                     with(3, 1, ints),
		"used after Close":                                                                   with(3, 1, closed),
		"is donated by another argument of the same call":                                    with(3, 1, good[3][0]),
	} {
		outs, err := exe.Run(args, pjrt.ExecuteOptions{})
		require.ErrorContains(t, err, want)
		require.Nil(t, outs)
	}
	for d := range good {
		require.False(t, good[d][0].IsDeleted())
	}
	outs := run(t, exe, good)
	require.Equal(t, float32(4), floats(t, outs[3][0])[0], "the refused calls changed nothing")
	closeAll(t, outs)

	// What was donated is gone.
	_, err = good[3][0].Bytes()
	require.ErrorContains(t, err, "was donated to donate")
	_, err = good[3][0].CopyTo(c.LocalDevices()[0])
	require.ErrorContains(t, err, "was donated to donate")
	_, err = exe.Run(good, pjrt.ExecuteOptions{})
	require.ErrorContains(t, err, "argument 0 on cpu device 0: buffer f32[128] on cpu device 0 was donated to donate")
}

// TestDonor: an argument may be used up though no output takes its memory over.
func TestDonor(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, `module @donor { func.func public @main(%a: tensor<4xf32> {jax.buffer_donor = true}, %b: tensor<2xf32>) -> tensor<2xf32> {
 %s = stablehlo.slice %a [0:2] : (tensor<4xf32>) -> tensor<2xf32>
 %r = stablehlo.add %s, %b : tensor<2xf32>
 return %r : tensor<2xf32> } }`, pjrt.CompileOptions{})
	params, err := exe.Parameters()
	require.NoError(t, err)
	require.True(t, params[0].Donated)
	require.False(t, params[1].Donated)
	args := [][]*pjrt.Buffer{{put(t, c, 0, []float32{1, 2, 3, 4}, 4), put(t, c, 0, []float32{5, 6}, 2)}}
	outs := run(t, exe, args)
	require.Equal(t, []float32{6, 8}, floats(t, outs[0][0]))
	_, err = args[0][0].Bytes()
	require.ErrorContains(t, err, "was donated to donor")
	closeAll(t, args, outs)
}

// TestUnknownParameters: without them the plugin's own checks remain, and what
// a call took is known afterwards.
func TestUnknownParameters(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, donateModule, sharded8)
	exe.ForgetParameters()
	args := donatedArgs(t, c)
	outs := run(t, exe, args)
	require.Equal(t, float32(2), floats(t, outs[1][0])[0])
	closeAll(t, outs)
	_, err := exe.Run(args, pjrt.ExecuteOptions{})
	require.ErrorContains(t, err, "argument 0 on cpu device 0: buffer f32[128] on cpu device 0 was donated to donate")
	require.Equal(t, float32(2), floats(t, args[1][1])[0], "the other argument is still there")
}

// TestDonatedTwice passes one buffer for two donated arguments.
func TestDonatedTwice(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, `module @twice { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
 %x = stablehlo.add %a, %b : tensor<4xf32>
 %y = stablehlo.multiply %a, %b : tensor<4xf32>
 return %x, %y : tensor<4xf32>, tensor<4xf32> } }`, pjrt.CompileOptions{})
	b := put(t, c, 0, []float32{1, 2, 3, 4}, 4)
	_, err := exe.Run([][]*pjrt.Buffer{{b, b}}, pjrt.ExecuteOptions{})
	require.ErrorContains(t, err, "twice: argument 1 on cpu device 0: buffer f32[4] on cpu device 0 is donated by another argument of the same call")
	require.Equal(t, []float32{1, 2, 3, 4}, floats(t, b))
	outs, err := exe.Run([][]*pjrt.Buffer{{b, b}}, pjrt.ExecuteOptions{NonDonatable: []int{0, 1}})
	require.NoError(t, err)
	require.Equal(t, []float32{1, 4, 9, 16}, floats(t, outs[0][1]))
	closeAll(t, outs)
	require.NoError(t, b.Close())
}

// TestDonationRace: of many calls that donate the same buffers at once exactly
// one gets them.
func TestDonationRace(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, donateModule, sharded8)
	for range 20 {
		args := donateArgs(t, c)
		var won, lost atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				outs, err := exe.Run(args, pjrt.ExecuteOptions{})
				if err != nil {
					lost.Add(1)
					return
				}
				won.Add(1)
				_ = pjrt.CloseBuffers(outs...)
			})
		}
		wg.Wait()
		require.LessOrEqual(t, won.Load(), int32(1))
		require.EqualValues(t, 4, won.Load()+lost.Load())
		closeAll(t, args)
	}
}

// TestCloseWhileRunning closes buffers and programs under calls that use them.
// Each call succeeds or says that something is closed.
func TestCloseWhileRunning(t *testing.T) {
	c := xlatest.CPU(t)
	busyCollector(t)
	rounds := 25
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		x, err := c.Compile([]byte(addModule), pjrt.CompileOptions{})
		require.NoError(t, err)
		b := put(t, c, 0, []float32{1})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					outs, err := x.Run([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
					if err != nil {
						if !isClosed(err) {
							t.Error(err)
						}
						return
					}
					if _, err := outs[0][0].Bytes(); err != nil {
						t.Error(err)
					}
					if err := outs[0][0].Close(); err != nil {
						t.Error(err)
					}
					if _, err := b.Bytes(); err != nil && !isClosed(err) {
						t.Error(err)
					}
				}
			})
		}
		for range 50 {
			stackAndHeap(20)
		}
		require.NoError(t, b.Close())
		require.NoError(t, x.Close())
		wg.Wait()
	}
}
