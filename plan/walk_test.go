package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/pjrt/hlo"
)

// small is a program written by hand.
type small struct {
	module *hlo.Module
	comp   *hlo.Computation
}

func newSmall() *small {
	m := &hlo.Module{}
	s := &small{module: m}
	s.comp = s.computation("main")
	m.Entry = s.comp
	return s
}

func (s *small) computation(name string) *hlo.Computation {
	c := &hlo.Computation{Name: name, Parent: s.module}
	s.module.Computations = append(s.module.Computations, c)
	return c
}

// add appends an instruction to a computation and makes it the root.
func add(c *hlo.Computation, i *hlo.Instruction) *hlo.Instruction {
	i.Parent, i.Name = c, fmt.Sprintf("%s.%d", i.Opcode, len(c.Instructions))
	c.Instructions, c.Root = append(c.Instructions, i), i
	return i
}

const bf16 = hlo.Type(16)

func array(dims ...int) hlo.Shape { return hlo.Shape{Type: bf16, Dims: dims} }

// working is an instruction of so many cycles.
func working(cycles int64) *hlo.Instruction {
	return &hlo.Instruction{Opcode: "fusion", Shape: array(8), BackendConfig: fmt.Appendf(nil, `{"window_config":{"estimated_cycles":"%d"}}`, cycles)}
}

func (s *small) predict(t *testing.T, basis Basis) *timing {
	t.Helper()
	mc, m := onTopology(t, "v5e:4x4", mesh.Axis{Name: "dp_shard", Size: 16})
	w := newWalker(s.module, mc, basis, newGroups(m).of)
	require.InDelta(t, w.run(s.module.Entry, 1, 1), w.out.seconds(), 1e-12, "the parts are the whole")
	return w.out
}

// gather is a synchronous all-gather of 2 MiB, and what it takes.
func gather() *hlo.Instruction { return &hlo.Instruction{Opcode: "all-gather", Shape: array(1 << 20)} }

func gatherSeconds(t *testing.T) float64 {
	mc, m := onTopology(t, "v5e:4x4", mesh.Axis{Name: "dp_shard", Size: 16})
	r, err := m.RouteOver("dp_shard")
	require.NoError(t, err)
	return mc.seconds(collective{"all-gather", 2 << 20, r})
}

const pace = paceReached * 197e12 / (4 * 2 * 128 * 128) // cycles of v5e's in a second

func TestLoopsMultiply(t *testing.T) {
	s := newSmall()
	body := s.computation("body")
	add(body, working(1000))
	add(body, gather())
	add(s.comp, working(500))
	add(s.comp, &hlo.Instruction{Opcode: "while", Called: []*hlo.Computation{body, s.computation("condition")}, BackendConfig: []byte(`{"known_trip_count":{"n":"7"}}`)})
	out := s.predict(t, Cycles)
	require.InEpsilon(t, (500+7*1000)/pace, out.parts[Other], 1e-9)
	require.InEpsilon(t, 7*gatherSeconds(t), out.parts[Communication], 1e-9)
	n := out.transfers["all-gather dp_shard"]
	require.Equal(t, int64(7), n.Count)
	require.Equal(t, 7.0*(2<<20), n.Bytes)
	require.Equal(t, 7.0*(2<<20)*15/16, n.Wire)
	require.InEpsilon(t, n.Seconds, n.Exposed, 1e-9, "nothing hides it")
	require.Empty(t, out.loops)
	require.Equal(t, 500+7*1000.0, out.cycles)
	rough := s.predict(t, Roofline)
	require.Equal(t, out.cycles, rough.cycles, "they are counted whatever the time is taken from")
	require.NotEqual(t, out.parts[Other], rough.parts[Other])
}

// A loop of unknown length in a loop of 9 turns 5 times on the mean.
func TestUnknownLoops(t *testing.T) {
	s := newSmall()
	inner, outer := s.computation("inner"), s.computation("outer")
	add(inner, working(1000))
	add(outer, &hlo.Instruction{Opcode: "while", Called: []*hlo.Computation{inner, s.computation("c1")}})
	add(s.comp, &hlo.Instruction{Opcode: "while", Called: []*hlo.Computation{outer, s.computation("c2")}, BackendConfig: []byte(`{"known_trip_count":{"n":"9"}}`)})
	out := s.predict(t, Cycles)
	require.InEpsilon(t, 9*5*1000/pace, out.seconds(), 1e-9)
	require.Equal(t, []string{"while.0"}, out.loops)
}

// Experts' rows are exchanged once if experts are balanced: the loop of further
// exchanges does not count.
func TestFurtherExchangesDoNotCount(t *testing.T) {
	s := newSmall()
	rest := s.computation("rest")
	add(rest, working(1000))
	add(s.comp, working(500))
	add(s.comp, &hlo.Instruction{Opcode: "while", Called: []*hlo.Computation{rest, s.computation("c")}, Metadata: hlo.Metadata{SourceFile: "/titan/models/decoder/moe_exchange.go"}})
	out := s.predict(t, Cycles)
	require.InEpsilon(t, 500/pace, out.seconds(), 1e-9)
	require.Empty(t, out.loops)
}

// Of an asynchronous collective only what the computation in between does not hide
// is waited for; a second one has to wait for the links.
func TestOverlap(t *testing.T) {
	g := gatherSeconds(t)
	for name, c := range map[string]struct {
		cycles, exposed float64
	}{
		"hidden":      {3 * g * pace, 0},
		"half hidden": {1.5 * g * pace, 0.5 * g},
		"not at all":  {0, 2 * g},
	} {
		s := newSmall()
		pair := hlo.Shape{Type: hlo.Tuple, Elements: []hlo.Shape{array(1 << 16), array(1 << 20)}}
		a := add(s.comp, &hlo.Instruction{Opcode: "all-gather-start", Shape: pair, ChannelID: 1})
		b := add(s.comp, &hlo.Instruction{Opcode: "all-gather-start", Shape: pair, ChannelID: 2})
		add(s.comp, working(int64(c.cycles)))
		add(s.comp, &hlo.Instruction{Opcode: "all-gather-done", Operands: []*hlo.Instruction{a}, Shape: array(1 << 20)})
		add(s.comp, &hlo.Instruction{Opcode: "all-gather-done", Operands: []*hlo.Instruction{b}, Shape: array(1 << 20)})
		out := s.predict(t, Cycles)
		require.InDelta(t, c.exposed, out.parts[Communication], 1e-9, name)
		require.InDelta(t, c.exposed, out.transfers["all-gather dp_shard"].Exposed, 1e-9, name)
		require.InDelta(t, 2*g, out.transfers["all-gather dp_shard"].Seconds, 1e-9, name)
	}
}

// Copies to and from the host go over its slower link, beside the computation.
func TestHostTransfers(t *testing.T) {
	s := newSmall()
	host := array(1 << 24)
	host.MemorySpace = 5
	start := add(s.comp, &hlo.Instruction{Opcode: "copy-start", Shape: hlo.Shape{Type: hlo.Tuple, Elements: []hlo.Shape{host, array(1 << 24), {Type: 8}}}})
	add(s.comp, working(1000))
	add(s.comp, &hlo.Instruction{Opcode: "copy-done", Operands: []*hlo.Instruction{start}, Shape: host})
	out := s.predict(t, Cycles)
	require.Equal(t, float64(2<<24), out.hostBytes)
	require.InEpsilon(t, float64(2<<24)/hostBandwidth-1000/pace, out.parts[Transfers], 1e-9)
}

// Of a row that is written to or read from a stack in the host's memory the row
// travels, not the stack.
func TestRowsOfTheHost(t *testing.T) {
	s := newSmall()
	stack, row := array(1<<24), array(1<<10)
	stack.MemorySpace = 5
	value := func(c *hlo.Computation, opcode string, shape hlo.Shape, operands ...*hlo.Instruction) *hlo.Instruction {
		return add(c, &hlo.Instruction{Opcode: opcode, Shape: shape, Operands: operands})
	}
	write, read := s.computation("write"), s.computation("read")
	value(write, "dynamic-update-slice", stack, value(write, "parameter", stack), value(write, "parameter", row))
	value(read, "dynamic-slice", row, value(read, "parameter", stack))
	tuple := func(elements ...hlo.Shape) hlo.Shape { return hlo.Shape{Type: hlo.Tuple, Elements: elements} }
	for c, ends := range map[*hlo.Computation]hlo.Shape{write: tuple(tuple(stack, row), stack), read: tuple(tuple(stack), row)} {
		start := add(s.comp, &hlo.Instruction{Opcode: "async-start", Called: []*hlo.Computation{c}, Shape: ends})
		value(s.comp, "async-done", ends.Elements[1], start)
	}
	out := s.predict(t, Cycles)
	require.Equal(t, 2*float64(2<<10), out.hostBytes)
}

func TestTileKernels(t *testing.T) {
	s := newSmall()
	k := add(s.comp, &hlo.Instruction{Opcode: "custom-call", CustomCallTarget: hlo.TileKernel, Shape: array(8),
		BackendConfig: []byte(`{"custom_call_config":{"body":"x","cost_estimate":{"flops":"1970000000000","bytes_accessed":1000,"transcendentals":0}}}`)})
	out := s.predict(t, Cycles)
	require.InEpsilon(t, 0.01/kernelOther, out.parts[Other], 1e-9)
	k.Name = "flash_attention.1"
	out = s.predict(t, Cycles)
	require.InEpsilon(t, 0.01/kernelAttention, out.parts[Attention], 1e-9)
	require.InEpsilon(t, 1.97e12, sum(out.flops[:]), 1e-9)
	k.Name, k.BackendConfig = "grouped", nil // without a cost, by what it moves
	k.Shape = array(819e9 / 2)
	out = s.predict(t, Cycles)
	require.InEpsilon(t, 1, out.parts[Experts], 1e-9)
}

// By rooflines, a contraction takes its arithmetic or its memory traffic.
func TestRoofline(t *testing.T) {
	s := newSmall()
	x := add(s.comp, &hlo.Instruction{Opcode: "parameter", Shape: array(4096, 4096)})
	dot := add(s.comp, &hlo.Instruction{Opcode: "dot", Operands: []*hlo.Instruction{x, x}, Shape: array(4096, 4096), Dot: &hlo.DotDims{LHSContract: []int{1}, RHSContract: []int{0}}})
	out := s.predict(t, Roofline)
	require.InEpsilon(t, 2*4096.0*4096*4096/197e12/matmulEfficiency, out.parts[Matmul], 1e-9)
	dot.Opcode, dot.Dot = "add", nil
	out = s.predict(t, Roofline)
	require.InEpsilon(t, 3*2*4096.0*4096/819e9/memoryEfficiency, out.parts[Other], 1e-9)
}

// Of what is stacked over the turns of a loop, a turn moves a slice.
func TestSlicesOfStacks(t *testing.T) {
	s := newSmall()
	f := s.computation("fused")
	p := add(f, &hlo.Instruction{Opcode: "parameter", Shape: array(64, 1024)})
	i := add(f, &hlo.Instruction{Opcode: "parameter", ParameterNumber: 1, Shape: hlo.Shape{Type: 4}})
	slice := add(f, &hlo.Instruction{Opcode: "dynamic-slice", Operands: []*hlo.Instruction{p, i}, Shape: array(1, 1024)})
	add(f, &hlo.Instruction{Opcode: "negate", Operands: []*hlo.Instruction{slice}, Shape: array(1, 1024)})
	stack := add(s.comp, &hlo.Instruction{Opcode: "parameter", Shape: array(64, 1024)})
	index := add(s.comp, &hlo.Instruction{Opcode: "parameter", Shape: hlo.Shape{Type: 4}})
	read := add(s.comp, &hlo.Instruction{Opcode: "fusion", Called: []*hlo.Computation{f}, Operands: []*hlo.Instruction{stack, index}, Shape: array(1, 1024)})
	require.Equal(t, 2048.0+2048+4, newTraffic().bytes(read), "a slice in, a slice out, and where it is")

	g := s.computation("update")
	p = add(g, &hlo.Instruction{Opcode: "parameter", Shape: array(64, 1024)})
	x := add(g, &hlo.Instruction{Opcode: "parameter", ParameterNumber: 1, Shape: array(1, 1024)})
	add(g, &hlo.Instruction{Opcode: "dynamic-update-slice", Operands: []*hlo.Instruction{p, x}, Shape: array(64, 1024)})
	write := add(s.comp, &hlo.Instruction{Opcode: "fusion", Called: []*hlo.Computation{g}, Operands: []*hlo.Instruction{stack, read}, Shape: array(64, 1024)})
	require.Equal(t, 2048.0+2048, newTraffic().bytes(write))

	vector := array(64, 1024)
	vector.MemorySpace = 1
	require.Zero(t, mainMemory(vector), "the vector memory is not the main one")
}

func TestParts(t *testing.T) {
	at := func(file string) *hlo.Instruction {
		return &hlo.Instruction{Opcode: "add", Metadata: hlo.Metadata{SourceFile: file}}
	}
	for file, want := range map[string]Part{
		"titan/models/decoder/attention_looped.go": Attention, "titan/models/decoder/moe_grouped.go": Experts,
		"titan/models/decoder/norm.go": Other, "titan/optim/adamw.go": Optimizer, "": Other, "elsewhere/attention.go": Other,
	} {
		require.Equal(t, want, partOf(at(file)), file)
	}
	dot := at("titan/models/decoder/layers.go")
	dot.Opcode = "dot"
	require.Equal(t, Matmul, partOf(dot))
	// A fusion is part of what its contraction is part of.
	c := &hlo.Computation{}
	inner := at("titan/models/decoder/attention.go")
	inner.Opcode = "dot"
	add(c, inner)
	fused := at("titan/models/decoder/layers.go")
	fused.Opcode, fused.Called = "fusion", []*hlo.Computation{c}
	require.Equal(t, Attention, partOf(fused))
}
