package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/decoder"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/train"
)

// The message with which libtpu 0.0.52 gives up.
func TestOverflow(t *testing.T) {
	e := &pjrt.OutOfMemory{Err: &pjrt.Error{Message: "E1000"}, Needed: 44 << 30, Available: 31 << 30, Memory: "hbm"}
	m := Memory{Limit: 31 << 30, Arguments: 11 << 30}
	m.overflow(e)
	require.False(t, m.Fits)
	require.Equal(t, int64(13<<30), m.Over())
	require.Equal(t, int64(33<<30), m.Temporaries)
	require.Contains(t, m.String(), "DOES NOT FIT: arguments and temporaries take 44.00 GiB of 31.00 GiB a device, 13.00 GiB too much")

	e.Memory = "vmem"
	m = Memory{Limit: 31 << 30, Arguments: 11 << 30}
	m.overflow(e)
	require.Zero(t, m.Needed, "that says nothing of the main memory")
	require.Contains(t, m.String(), "DOES NOT FIT: the vmem of a device, which one operation overflows")
}

// A step of Qwen3-235B-A22B that keeps 47 GiB on the host: its peak counts them.
func TestNeededIsTheDevices(t *testing.T) {
	s := pjrt.MemoryStats{Args: 11030545920, Outputs: 11029812448, Alias: 11029758976, Temp: 42453483520, Peak: 61496538848, HostTemp: 47 << 30}
	require.Equal(t, int64(53484082912), s.Needed())
	s.HostTemp = 0
	require.Equal(t, s.Peak, s.Needed(), "more than the sum, and nothing on the host")
	s.Peak = 0 // the plugin does not say
	require.Equal(t, int64(53484082912), s.Needed())
}

// What goes to the host has to fit there.
func TestHostMemory(t *testing.T) {
	r, err := debugRecipe(t)()
	require.NoError(t, err)
	s, err := build(r)
	require.NoError(t, err)
	stats := pjrt.MemoryStats{Args: 1 << 30, Outputs: 1 << 20, Temp: 1 << 30, HostTemp: 50 << 30}
	m := Memory{Limit: 15 << 30, HostLimit: 40 << 30}
	m.compiled(stats, s, &hlo.Module{})
	require.False(t, m.Fits)
	require.Zero(t, m.Over(), "of the device's own memory")
	require.Contains(t, m.String(), "DOES NOT FIT: what activation_checkpoint.offload names takes 50.00 GiB of the host's memory for each device, of which 40.00 GiB can be had")
	m.HostLimit = 60 << 30
	m.compiled(stats, s, &hlo.Module{})
	require.True(t, m.Fits)
	require.Contains(t, m.String(), "in the host's memory 50.00 GiB of 60.00 GiB")

	mc, err := newMachine("tpu7x")
	require.NoError(t, err)
	require.Equal(t, int64(108e9), mc.hostLimit(), "of 960 GB for four chips, two devices each")
	c := chooser{limit: 1 << 40, machine: mc, ratio: 1}
	require.True(t, c.room(Choice{host: 108e9}))
	require.False(t, c.room(Choice{host: 109e9}))
}

func TestTight(t *testing.T) {
	for _, c := range []struct {
		needed, temporaries int64
		fits, tight         bool
	}{{800, 500, true, false}, {900, 500, true, false}, {901, 500, true, true}, {1000, 5, true, true}, {1001, 500, false, true}, {1050, 500, false, true}, {1051, 500, false, false}, {0, 0, false, false}, {900, 500, false, false}} {
		m := Memory{Limit: 1000, Fits: c.fits, Needed: c.needed, Temporaries: c.temporaries}
		m.mark()
		require.Equal(t, c.tight, m.Tight, "%v", c)
	}
	m := Memory{Limit: 32 << 30, Needed: 31 << 30, Temporaries: 20 << 30, Fits: true}
	m.mark()
	require.Contains(t, m.String(), "fits, only just: 31.00 GiB of 32.00 GiB")
	require.Contains(t, (&Report{Memory: m}).String(), "this may not fit")
	m = Memory{Limit: 32 << 30, Needed: 33 << 30, Temporaries: 20 << 30, Why: "arguments and temporaries"}
	m.mark()
	require.Contains(t, m.String(), "DOES NOT FIT, only just: arguments and temporaries take 33.00 GiB of 32.00 GiB")
	require.Contains(t, (&Report{Memory: m}).String(), "it may fit")
}

func TestBudgetMissed(t *testing.T) {
	m := Memory{Limit: 31 << 30, Arguments: 4 << 30}
	e := &train.BudgetError{Budget: 8 << 30, Best: train.RematTrial{Policy: decoder.ActivationCheckpoint{Mode: "full"}, Estimate: 10 << 30, Compiled: math.MaxInt64}, Advice: []string{"less"}}
	m.misses(e)
	require.Equal(t, int64(2<<30), m.Over(), "by estimate, if the compiler did not say")
	e.Best.Compiled = 9 << 30
	m.misses(e)
	require.Equal(t, int64(1<<30), m.Over())
	require.Equal(t, []string{"less"}, m.Advice)
}

func TestLargestValues(t *testing.T) {
	s := newSmall()
	stack := add(s.comp, &hlo.Instruction{Opcode: "parameter", Shape: array(1 << 20)})
	for range 2 {
		add(s.comp, &hlo.Instruction{Opcode: "add", Shape: array(1 << 10), Metadata: hlo.Metadata{OpName: "call.1/twice", SourceFile: "a/b/c.go", SourceLine: 7}})
	}
	add(s.comp, &hlo.Instruction{Opcode: "add", Shape: array(1 << 11), Metadata: hlo.Metadata{OpName: "jit/call.1/large"}})
	vector := array(1 << 30)
	vector.MemorySpace = 1
	add(s.comp, &hlo.Instruction{Opcode: "add", Shape: vector})
	f := s.computation("update")
	add(f, &hlo.Instruction{Opcode: "dynamic-update-slice", Shape: array(1 << 20)})
	add(s.comp, &hlo.Instruction{Opcode: "fusion", Called: []*hlo.Computation{f}, Operands: []*hlo.Instruction{stack}, Shape: array(1 << 20)})
	require.Equal(t, []Buffer{
		{Name: "large", Shape: "bf16[2048]", Bytes: 4096, Count: 1},
		{Name: "twice", Shape: "bf16[1024]", Bytes: 2048, Line: "b/c.go:7", Count: 2},
	}, largestValues(s.module), "arguments, updates in place and the vector memory are not listed")
}
