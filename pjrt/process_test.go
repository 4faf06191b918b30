package pjrt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
	"titan/pjrt/plugins"
)

func init() {
	children["signals"] = signalsChild
	children["exit"] = exitChild
	children["fatal"] = fatalChild
	children["callbacks"] = callbacksChild
	children["memory"] = memoryChild
	children["environment"] = environmentChild
}

func childClient() (*pjrt.Client, error) {
	path, err := plugins.Find("cpu")
	if err != nil {
		return nil, err
	}
	p, err := pjrt.Open(path)
	if err != nil {
		return nil, err
	}
	return p.NewClient(pjrt.ClientOptions{Devices: 8})
}

const productModule = `module @product { sdy.mesh @mesh = <["d"=8]>
func.func public @main(%a: tensor<256x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> (tensor<256x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) {
 %r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
 return %r : tensor<256x256xf32> } }`

// signalsChild computes on 8 devices, profiling itself and counting signals,
// until SIGTERM; then it closes everything.
func signalsChild() error {
	term, other := make(chan os.Signal, 1), make(chan os.Signal, 10000)
	signal.Notify(term, syscall.SIGTERM)
	signal.Notify(other, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGWINCH)
	c, err := childClient()
	if err != nil {
		return err
	}
	debug.SetGCPercent(10)
	x, err := c.Compile([]byte(productModule), sharded8)
	if err != nil {
		return err
	}
	args := make([][]*pjrt.Buffer, 8)
	for d := range args {
		b, err := c.Put(make([]byte, 32*256*4), dtype.F32, []int{32, 256}, c.LocalDevices()[d])
		if err != nil {
			return err
		}
		args[d] = []*pjrt.Buffer{b}
	}
	var prof bytes.Buffer
	if err := pprof.StartCPUProfile(&prof); err != nil {
		return err
	}
	fmt.Println("ready")
	steps := 0
	for len(term) == 0 {
		outs, err := x.Run(args, pjrt.ExecuteOptions{})
		if err != nil {
			return err
		}
		if err := pjrt.CloseBuffers(outs...); err != nil {
			return err
		}
		steps++
	}
	pprof.StopCPUProfile()
	if err := errors.Join(pjrt.CloseBuffers(args...), x.Close(), c.Close()); err != nil {
		return err
	}
	fmt.Printf("clean exit: %v steps, %v signals\n", steps > 0, len(other) > 0)
	return nil
}

// waitFor polls until ok holds or the test has waited for a minute.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain for " + what)
}

// TestSignals sends thousands of signals to every thread of a process that
// computes, XLA's threads included.
func TestSignals(t *testing.T) {
	xlatest.CPU(t)
	cmd, _ := child(t, "signals")
	out := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	waitFor(t, "the child", func() bool { return strings.Contains(out.String(), "ready") || cmd.ProcessState != nil })
	pid, sent := cmd.Process.Pid, 0
	for sent < 5000 {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			break // it has died
		}
		for i, task := range tasks {
			tid, _ := strconv.Atoi(task.Name())
			sig := []syscall.Signal{syscall.SIGINT, syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGURG, syscall.SIGPROF}[(i+sent)%5]
			syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(pid), uintptr(tid), uintptr(sig))
			sent++
		}
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), out.String())
	require.Contains(t, out.String(), "clean exit: true steps, true signals")
}

// exitChild makes and closes clients and returns from main.
func exitChild() error {
	for range 3 {
		c, err := childClient()
		if err != nil {
			return err
		}
		x, err := c.Compile([]byte(addModule), pjrt.CompileOptions{})
		if err != nil {
			return err
		}
		b, err := c.Put(make([]byte, 4), dtype.F32, nil, c.LocalDevices()[0])
		if err != nil {
			return err
		}
		outs, err := x.Run([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
		if err != nil {
			return err
		}
		if err := errors.Join(pjrt.CloseBuffers(outs...), b.Close(), x.Close(), c.Close()); err != nil {
			return err
		}
	}
	return nil
}

func TestExit(t *testing.T) {
	xlatest.CPU(t)
	cmd, out := child(t, "exit")
	require.NoError(t, cmd.Run(), out)
}

// fatalChild panics while XLA computes.
func fatalChild() error {
	c, err := childClient()
	if err != nil {
		return err
	}
	x, err := c.Compile([]byte(addModule), pjrt.CompileOptions{})
	if err != nil {
		return err
	}
	b, err := c.Put(make([]byte, 4), dtype.F32, nil, c.LocalDevices()[0])
	if err != nil {
		return err
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		panic("on purpose")
	}()
	for {
		outs, err := x.Run([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
		if err != nil {
			return err
		}
		if err := pjrt.CloseBuffers(outs...); err != nil {
			return err
		}
	}
}

// TestFatalPanic: a panic of the program still ends it with Go's traceback.
func TestFatalPanic(t *testing.T) {
	xlatest.CPU(t)
	cmd, out := child(t, "fatal")
	_ = cmd.Run() // fails
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), out)
	require.Contains(t, out.String(), "panic: on purpose")
	require.Contains(t, out.String(), "goroutine ")
}

// callbacksChild registers custom calls until there is no room.
func callbacksChild() error {
	c, err := childClient()
	if err != nil {
		return err
	}
	for i := range 5000 {
		err := c.Plugin().RegisterCustomCall(fmt.Sprint("h", i), func(*pjrt.CustomCall) error { return nil })
		if err != nil {
			fmt.Println(err)
			return c.Close()
		}
	}
	return errors.New("no limit")
}

func TestCallbackLimit(t *testing.T) {
	xlatest.CPU(t)
	cmd, out := child(t, "callbacks")
	require.NoError(t, cmd.Run(), out)
	require.Contains(t, out.String(), "RESOURCE_EXHAUSTED: no room for another callback")
}

// resident returns the bytes of memory the process has now.
func resident() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return pages * os.Getpagesize()
}

// memoryChild uses much more memory in turn than it may keep.
func memoryChild() error {
	c, err := childClient()
	if err != nil {
		return err
	}
	const size = 64 << 10
	buffers := func() error {
		for i := range 1000 {
			data := make([]byte, size)
			b, _, err := c.FromHost(data, dtype.U8, []int{size}, c.LocalDevices()[i%8], pjrt.Semantics(i%4))
			if err != nil {
				return err
			}
			got, err := b.Bytes()
			if err != nil || len(got) != size {
				return err
			}
			if err := b.Close(); err != nil {
				return err
			}
		}
		return nil
	}
	programs := func() error {
		for i := range 15 {
			program := strings.ReplaceAll(addModule, "@add", fmt.Sprint("@add", i))
			x, err := c.Compile([]byte(program), pjrt.CompileOptions{})
			if err != nil {
				return err
			}
			if _, err := x.Parameters(); err != nil {
				return err
			}
			blob, err := x.Serialize()
			if err != nil {
				return err
			}
			y, err := c.Load(blob)
			if err != nil {
				return err
			}
			if os.Getenv("TITAN_PJRT_TEST_LEAK") == "" {
				if err := errors.Join(x.Close(), y.Close()); err != nil {
					return err
				}
			} else {
				leaked = append(leaked, x, y)
			}
		}
		return nil
	}
	for name, f := range map[string]func() error{"buffers": buffers, "programs": programs} {
		if err := f(); err != nil { // warm up
			return err
		}
		runtime.GC()
		before := resident()
		for range 3 {
			if err := f(); err != nil {
				return err
			}
		}
		runtime.GC()
		debug.FreeOSMemory()
		fmt.Println(name, "grew", max(0, resident()-before)>>10)
	}
	if os.Getenv("TITAN_PJRT_TEST_LEAK") != "" {
		return nil
	}
	return c.Close()
}

var leaked []any

// TestMemory: 3000 buffers of 64 KiB and 90 executables, which would take 190 and
// 11 MiB, come and go, and the process does not grow by a fraction of that.
func TestMemory(t *testing.T) {
	xlatest.CPU(t)
	cmd, out := child(t, "memory")
	require.NoError(t, cmd.Run(), out)
	for name, limit := range map[string]int{"buffers": 32 << 10, "programs": 6 << 10} {
		_, rest, found := strings.Cut(out.String(), name+" grew ")
		require.True(t, found, out)
		grew, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		require.Less(t, grew, limit, "KiB; %s", name)
	}
}

// environmentChild checks that what OpenWith sets is there when the plugin
// reads it: a flag unknown to XLA ends the process.
func environmentChild() error {
	path, err := plugins.Find("cpu")
	if err != nil {
		return err
	}
	p, err := pjrt.OpenWith(path, pjrt.OpenOptions{Env: map[string]string{"XLA_FLAGS": "--no_such_flag_of_xla=1"}})
	if err != nil {
		return err
	}
	_, err = p.NewClient(pjrt.ClientOptions{})
	return err
}

func TestOpenEnvironment(t *testing.T) {
	xlatest.CPU(t)
	cmd, out := child(t, "environment")
	require.Error(t, cmd.Run())
	require.Contains(t, out.String(), "no_such_flag_of_xla")
}
