package pjrt_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

// Tests that must run in a process of their own start this binary again with
// the child's name in childVar.
const childVar = "TITAN_PJRT_TEST_CHILD"

var children = map[string]func() error{}

func TestMain(m *testing.M) {
	if f := children[os.Getenv(childVar)]; f != nil {
		if err := f(); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := leaks(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// leaks waits for operations that end by themselves and reports what tests left
// behind. The shared client stays.
func leaks() error {
	var err error
	for range 200 {
		live := pjrt.LiveObjects()
		delete(live, "client")
		switch {
		case len(live) > 0:
			err = fmt.Errorf("the tests left %v", live)
		case pjrt.Handles() > 0:
			err = fmt.Errorf("the tests left %d callback handles", pjrt.Handles())
		case pjrt.LiveObjects()["client"] > 1:
			err = fmt.Errorf("the tests left %v", pjrt.LiveObjects())
		default:
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func child(t *testing.T, name string, env ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), childVar+"="+name, "TF_CPP_MIN_LOG_LEVEL=3"), env...)
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// lockedBuffer collects the output of a child while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// busyCollector makes the collector run all the time, and other goroutines
// allocate and move their stacks, until the test ends.
func busyCollector(t testing.TB) {
	t.Helper()
	old := debug.SetGCPercent(5)
	var quit atomic.Bool
	var wg sync.WaitGroup
	var grow func(int) int
	grow = func(d int) int {
		var pad [128]byte
		if d == 0 {
			return 0
		}
		pad[d%128] = byte(d)
		return grow(d-1) + int(pad[d%128])
	}
	for range 2 {
		wg.Go(func() {
			var keep [64][]byte
			for i := 0; !quit.Load(); i++ {
				keep[i%64] = make([]byte, 1<<(i%15))
				for j := range keep[i%64] {
					keep[i%64][j] = 0xa5
				}
				if i%50 == 0 {
					wg.Go(func() { grow(200) })
					runtime.Gosched()
				}
			}
		})
	}
	t.Cleanup(func() {
		quit.Store(true)
		wg.Wait()
		debug.SetGCPercent(old)
	})
}

// stackAndHeap grows the stack of the calling goroutine and allocates.
func stackAndHeap(depth int) int {
	var pad [256]byte
	b := make([]byte, 1024)
	pad[depth], b[depth] = 1, 1
	if depth == 0 {
		return int(b[0])
	}
	return stackAndHeap(depth-1) + int(pad[depth]) + int(b[depth])
}

var sharded8 = pjrt.CompileOptions{Partitions: 8, Shardy: true}

func compile(t testing.TB, c *pjrt.Client, program string, o pjrt.CompileOptions) *pjrt.LoadedExecutable {
	t.Helper()
	x, err := c.Compile([]byte(program), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func testdata(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".mlir")
	require.NoError(t, err)
	return string(b)
}

func put(t testing.TB, c *pjrt.Client, dev int, x []float32, dims ...int) *pjrt.Buffer {
	t.Helper()
	b, err := c.Put(pjrt.AsBytes(x), dtype.F32, dims, c.LocalDevices()[dev])
	require.NoError(t, err)
	return b
}

func floats(t testing.TB, b *pjrt.Buffer) []float32 {
	t.Helper()
	data, err := b.Bytes()
	require.NoError(t, err)
	return xlatest.Array{DType: b.DType(), Dims: b.Dims(), Data: data}.Float32s()
}

func closeAll(t testing.TB, lists ...[][]*pjrt.Buffer) {
	t.Helper()
	for _, l := range lists {
		require.NoError(t, pjrt.CloseBuffers(l...))
	}
}

func run(t testing.TB, x *pjrt.LoadedExecutable, args [][]*pjrt.Buffer) [][]*pjrt.Buffer {
	t.Helper()
	outs, err := x.Run(args, pjrt.ExecuteOptions{})
	require.NoError(t, err)
	return outs
}

func sines(n int, step float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i) * step))
	}
	return x
}

const addModule = `module @add { func.func public @main(%a: tensor<f32>) -> tensor<f32> {
 %r = stablehlo.add %a, %a : tensor<f32>
 return %r : tensor<f32> } }`

// donateModule adds g to p in place on 8 devices.
const donateModule = `module @donate attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} { sdy.mesh @mesh = <["d"=8]>
func.func public @main(%p: tensor<1024xf32> {tf.aliasing_output = 0 : i32, sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>},
  %g: tensor<1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> (tensor<1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
 %r = stablehlo.add %p, %g : tensor<1024xf32>
 return %r : tensor<1024xf32> } }`

// donateArgs returns zeros to be added to, and ones times the device's number
// plus one.
func donateArgs(t testing.TB, c *pjrt.Client) [][]*pjrt.Buffer {
	args := make([][]*pjrt.Buffer, 8)
	for d := range args {
		g := make([]float32, 128)
		for i := range g {
			g[i] = float32(d + 1)
		}
		args[d] = []*pjrt.Buffer{put(t, c, d, make([]float32, 128), 128), put(t, c, d, g, 128)}
	}
	return args
}
