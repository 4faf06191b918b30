package xlatest

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/pjrt"
)

// Array is a dense row-major array in host memory, little-endian.
type Array struct {
	DType dtype.DType
	Dims  []int
	Data  []byte
}

// F32 makes an Array of float32; without dims it is a vector.
func F32(x []float32, dims ...int) Array { return make1(dtype.F32, x, dims) }

// S32 makes an Array of int32; without dims it is a vector.
func S32(x []int32, dims ...int) Array { return make1(dtype.S32, x, dims) }

// Scalar makes a float32 Array of rank 0.
func Scalar(x float32) Array {
	return Array{dtype.F32, []int{}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))}
}

func make1[T pjrt.Scalar](d dtype.DType, x []T, dims []int) Array {
	if len(dims) == 0 {
		dims = []int{len(x)}
	}
	return Array{d, dims, append([]byte(nil), pjrt.AsBytes(x)...)}
}

// Float32s returns the elements, of any type, as float32.
func (a Array) Float32s() []float32 {
	out := make([]float32, a.Len())
	for i := range out {
		out[i] = float32(dtype.Float(a.DType, a.Data, i))
	}
	return out
}

// Int32s returns the elements, of any type, as int32.
func (a Array) Int32s() []int32 {
	out := make([]int32, a.Len())
	for i := range out {
		out[i] = int32(dtype.Float(a.DType, a.Data, i))
	}
	return out
}

// Len returns the number of elements.
func (a Array) Len() int { return len(a.Data) / max(1, a.DType.Size()) }

// compiled holds executables by program and options.
var compiled struct {
	sync.Mutex
	exes map[[32]byte]*pjrt.LoadedExecutable
}

// Compile compiles a Shardy program for the first devices of c, with [LittleEffort]
// unless for a benchmark. Programs are kept for the life of the process, so tests
// that compile the same text share an executable, which must not be closed.
func Compile(t testing.TB, c *pjrt.Client, program string, devices int) *pjrt.LoadedExecutable {
	t.Helper()
	require.LessOrEqual(t, devices, len(c.LocalDevices()))
	key := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(program), uint64(devices)))
	compiled.Lock()
	defer compiled.Unlock()
	if x := compiled.exes[key]; x != nil && x.Client() == c {
		return x
	}
	o := pjrt.CompileOptions{Partitions: devices, Shardy: true}
	if _, bench := t.(*testing.B); !bench {
		o.Flags = LittleEffort()
	}
	x, err := c.Compile([]byte(program), o)
	require.NoError(t, err, "%s", program)
	if compiled.exes == nil {
		compiled.exes = map[[32]byte]*pjrt.LoadedExecutable{}
	}
	compiled.exes[key] = x
	return x
}

// Run compiles program for the first devices of c, as [Compile] does, runs it
// on args[device][argument] (the shards, if the program is sharded) and returns
// outputs[device][output].
func Run(t testing.TB, c *pjrt.Client, program string, devices int, args [][]Array) [][]Array {
	t.Helper()
	return RunExecutable(t, Compile(t, c, program, devices), args)
}

// RunExecutable is Run for a compiled program.
func RunExecutable(t testing.TB, x *pjrt.LoadedExecutable, args [][]Array) [][]Array {
	t.Helper()
	require.Len(t, args, len(x.Devices()))
	in := make([][]*pjrt.Buffer, len(args))
	defer func() { _ = pjrt.CloseBuffers(in...) }()
	for d, as := range args {
		for i, a := range as {
			b, err := x.Client().Put(a.Data, a.DType, a.Dims, x.Devices()[d])
			require.NoError(t, err, "argument %d on device %d", i, d)
			in[d] = append(in[d], b)
		}
	}
	outs, err := x.Run(in, pjrt.ExecuteOptions{})
	require.NoError(t, err)
	defer func() { _ = pjrt.CloseBuffers(outs...) }()
	res := make([][]Array, len(outs))
	for d, bs := range outs {
		for i, b := range bs {
			data, err := b.Bytes()
			require.NoError(t, err, "output %d on device %d", i, d)
			res[d] = append(res[d], Array{b.DType(), b.Dims(), data})
		}
	}
	return res
}

// Same returns n times the same arguments, for programs whose arguments are not
// sharded.
func Same(n int, args ...Array) [][]Array {
	out := make([][]Array, n)
	for i := range out {
		out[i] = args
	}
	return out
}
