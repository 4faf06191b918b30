package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/kernels"
	"titan/pjrt/hlo"
	"titan/pjrt/llo"
)

// A step of a grid takes as long as its code or, where that is longer, as the
// copies for the next.
func TestTimeOfKernels(t *testing.T) {
	g := llo.Grid{Outside: 500, Always: 100, Bundles: 1, Branches: []llo.Branch{{Depth: 0, Cycles: 1000, Dot: true}, {Depth: 1, Cycles: 300}}}
	e := kernels.Expected{Parallel: 3, Ends: 819e3, Conditionals: []kernels.Conditional{{Depth: 0, Dot: true}, {Depth: 1}}, Steps: []kernels.Steps{
		{Count: 10, Ran: "11", Bytes: 819}, {Count: 20, Ran: "10", Bytes: 8190e3}, {Count: 30, Ran: "00"},
	}}
	m, err := newMachine("v5e")
	require.NoError(t, err)
	got, err := m.callTime(g, e)
	require.NoError(t, err)
	issue := (500 + 10*1400.0 + 20*1100 + 30*100) / m.pace()
	waits := 1e-6 + 20*(10e-6-1100/m.pace())
	require.InEpsilon(t, issue, got.issue, 1e-9)
	require.InEpsilon(t, waits, got.waits, 1e-9)
	require.InEpsilon(t, issue+waits, got.seconds, 1e-9)

	// Two cores of a device share three steps: one does two. They share its memory.
	m, err = newMachine("v5p")
	require.NoError(t, err)
	e.Steps = []kernels.Steps{{Count: 30, Ran: "10", Bytes: 1}, {Count: 30, Ran: "10", Bytes: m.hbm * 1e-3}}
	got, err = m.callTime(g, e)
	require.NoError(t, err)
	require.InEpsilon(t, (500+60*1100*2.0/3)/m.pace(), got.issue, 1e-9)
	require.InEpsilon(t, e.Ends/m.hbm+30*2.0/3*(2e-3-1100/m.pace()), got.waits, 1e-9)
}

func TestBranchesOfConditionals(t *testing.T) {
	b := func(depth int, dot bool) llo.Branch { return llo.Branch{Depth: depth, Dot: dot} }
	c := func(depth int, dot bool) kernels.Conditional { return kernels.Conditional{Depth: depth, Dot: dot} }
	got, err := match([]llo.Branch{b(0, true), b(1, false), b(0, false)}, []kernels.Conditional{c(0, true), c(1, false), c(0, false)})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, got)
	got, err = match([]llo.Branch{b(0, true), b(0, true)}, []kernels.Conditional{c(0, false), c(0, true), c(0, true), c(0, false)})
	require.NoError(t, err)
	require.Equal(t, []int{-1, 0, 1, -1}, got, "what only stores a little needs no jump")
	_, err = match([]llo.Branch{b(0, true)}, []kernels.Conditional{c(0, true), c(0, true)})
	require.ErrorContains(t, err, "conditional 1 of the kernel, which multiplies tiles, is no branch")
	_, err = match([]llo.Branch{b(0, false), b(0, true)}, []kernels.Conditional{c(0, true)})
	require.ErrorContains(t, err, "2 branches of which 1 are not found among the 1 conditionals")
}

func TestKernelJobs(t *testing.T) {
	_, err := kernelProgram(&hlo.Instruction{CustomCallTarget: hlo.TileKernel, BackendConfig: []byte("{")})
	require.ErrorContains(t, err, "the call of the kernel")
	_, err = readGrid(t.TempDir(), "v5e")
	require.ErrorContains(t, err, "does not write its code down")
}
