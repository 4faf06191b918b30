package hlo

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func shaped(dims ...int) *Instruction { return &Instruction{Shape: Shape{Type: 11, Dims: dims}} }

func TestFlops(t *testing.T) {
	dot := &Instruction{Opcode: "dot", Shape: Shape{Type: 11, Dims: []int{2, 3, 5}}, Operands: []*Instruction{shaped(2, 3, 7), shaped(2, 7, 5)},
		Dot: &DotDims{LHSBatch: []int{0}, RHSBatch: []int{0}, LHSContract: []int{2}, RHSContract: []int{1}}}
	require.Equal(t, 2.0*2*3*5*7, dot.Flops())
	require.Zero(t, shaped(3).Flops())

	// A matrix product as compilers for TPU write it: no spatial dimensions.
	conv := &Instruction{Opcode: "convolution", Shape: Shape{Type: 11, Dims: []int{3, 5}}, Operands: []*Instruction{shaped(3, 7), shaped(7, 5)},
		Conv: &Convolution{InputFeature: 1, KernelOutput: 1, OutputFeature: 1}}
	require.Equal(t, 2.0*3*5*7, conv.Flops())

	// Batches as a spatial dimension: a window that meets one element at a time.
	batched := func(w WindowDim) float64 {
		c := &Instruction{Opcode: "convolution", Shape: Shape{Type: 11, Dims: []int{4, 3, 5}}, Operands: []*Instruction{shaped(4, 3, 7), shaped(4, 7, 5)},
			Conv: &Convolution{Window: []WindowDim{w}, InputBatch: 1, InputFeature: 2, KernelInput: 1, KernelOutput: 2, OutputBatch: 1, OutputFeature: 2,
				InputSpatial: []int{0}, KernelSpatial: []int{0}, OutputSpatial: []int{0}}}
		return c.Flops()
	}
	require.Equal(t, 4*2.0*3*5*7, batched(WindowDim{Size: 4, Stride: 3, WindowDilation: 1, BaseDilation: 4}))
	require.Equal(t, 0.0, (&Convolution{Window: []WindowDim{{}}}).flops(Shape{}, Shape{}, Shape{}), "malformed")
}

// The products of a window, against the definition.
func TestWindows(t *testing.T) {
	for _, w := range []WindowDim{{3, 1, 0, 0, 1, 1}, {3, 1, 1, 1, 1, 1}, {4, 2, 1, 2, 1, 1}, {2, 1, 3, 3, 2, 1}, {3, 1, 2, 2, 1, 2}, {1, 1, 0, 0, 1, 1}} {
		const in = 9
		span := (in-1)*w.BaseDilation + 1 + w.PadLow + w.PadHigh
		out := (span-((w.Size-1)*w.WindowDilation+1))/w.Stride + 1
		n := 0
		for o := range out {
			for k := range w.Size {
				for x := range in {
					if o*w.Stride+k*w.WindowDilation == w.PadLow+x*w.BaseDilation {
						n++
					}
				}
			}
		}
		require.Equal(t, float64(n), w.products(in, out), "%+v", w)
	}
	long := WindowDim{Size: 2, Stride: 1, WindowDilation: 1, BaseDilation: 1}
	require.InEpsilon(t, 2*(maxWindowSteps+1), long.products(maxWindowSteps+2, maxWindowSteps+1), 1e-3)
}

func TestKernelCost(t *testing.T) {
	i := &Instruction{Opcode: "custom-call", CustomCallTarget: TileKernel, BackendConfig: []byte(`{"custom_call_config":{"body":"","cost_estimate":{"flops":"12","bytes_accessed":34,"transcendentals":"5"}}}`)}
	c, ok := i.KernelCost()
	require.True(t, ok)
	require.Equal(t, KernelCost{12, 34, 5}, c)
	i.Name = "custom_call.1"
	require.Equal(t, "custom_call.1", i.KernelName())
	body := base64.StdEncoding.EncodeToString([]byte(`module { "stable_mosaic.func.func"() ({}) {sym_name = "attention"} : () -> ()  "f"() {sym_name = "transform_0"} }`))
	i.BackendConfig = fmt.Appendf(nil, `{"custom_call_config":{"body":%q}}`, body)
	require.Equal(t, "attention", i.KernelName())
	i.BackendConfig = []byte(`{"custom_call_config":{"body":"-"}}`)
	require.Equal(t, "custom_call.1", i.KernelName())
	i.BackendConfig = []byte(`{"custom_call_config":{}}`)
	_, ok = i.KernelCost()
	require.False(t, ok)
	i.CustomCallTarget = "other"
	_, ok = i.KernelCost()
	require.False(t, ok)
	require.Empty(t, i.KernelName())
}

// A fusion that does a whole collective is one; steps of one that another fusion
// begins are not.
func TestFusedCollectives(t *testing.T) {
	comp := func(is ...*Instruction) *Computation {
		c := &Computation{Instructions: is, Root: is[len(is)-1]}
		for _, i := range is {
			i.Parent = c
		}
		return c
	}
	reduce := &Instruction{Opcode: "all-reduce", ChannelID: 1}
	scatter := &Instruction{Opcode: "fusion", FusionKind: "kCustom", Called: []*Computation{comp(reduce, &Instruction{Opcode: "dynamic-slice", Operands: []*Instruction{reduce}})}}
	plain := &Instruction{Opcode: "fusion", FusionKind: "kCustom", Called: []*Computation{comp(&Instruction{Opcode: "all-reduce", ChannelID: 3})}}
	begun := &Instruction{Opcode: "all-gather", ChannelID: 2}
	start := &Instruction{Opcode: "fusion", FusionKind: "kCustom", Called: []*Computation{comp(begun, &Instruction{Opcode: "custom-call", CustomCallTarget: asyncCollectiveStart, Operands: []*Instruction{begun}})}}
	step := &Instruction{Opcode: "fusion", FusionKind: "kCustom", Called: []*Computation{comp(&Instruction{Opcode: "all-gather", ChannelID: 2})}}
	loop := &Instruction{Opcode: "fusion", FusionKind: "kLoop", Called: []*Computation{comp(&Instruction{Opcode: "all-gather", ChannelID: 4})}}
	m := &Module{Entry: comp(scatter, plain, start, step, loop)}
	var kinds []string
	for _, c := range m.Collectives() {
		kinds = append(kinds, c.Kind())
	}
	require.Equal(t, []string{"reduce-scatter", "all-reduce", "all-gather"}, kinds)
}
