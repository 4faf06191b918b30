package decoder

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/sharding"
)

// contextProgram is attention of one sequence of S tokens in bf16, whose parts
// devices hold, and its gradients.
func contextProgram(t *testing.T, n, S, H, K, h int, o AttentionOptions, tiled *tiledBlocks) *graph.Module {
	t.Helper()
	m, err := mesh.New([]mesh.Axis{{Name: "context", Size: n}}, nil)
	require.NoError(t, err)
	part := sharding.P(nil, "context")
	mod, err := graph.Trace("attention", m, func(b *graph.Builder) error {
		q, k := graph.T(dtype.BF16, 1, S, H, h), graph.T(dtype.BF16, 1, S, K, h)
		input := func(name string, t graph.Type) *graph.Value { return b.Input(name, t, graph.Sharded(part)) }
		args := []*graph.Value{input("q", q), input("k", k), input("v", k), input("ct", q), input("segments", graph.T(dtype.S32, 1, S))}
		specs := []sharding.Spec{part, part, part, part, part}
		outs := b.ShardMap(args, specs, specs[:4], func(x []*graph.Value) []*graph.Value {
			out := contextAttention(x[0], x[1], x[2], x[4], Group{Axes: []string{"context"}, Size: n}, o, tiled)
			return append([]*graph.Value{out}, graph.VJP([]*graph.Value{out}, []*graph.Value{x[3]}, x[:3])...)
		})
		for i, o := range outs {
			b.Output(attentionResults[i], o, graph.Sharded(part))
		}
		return nil
	})
	require.NoError(t, err)
	return mod
}

// The program of the ring does not grow with the devices; what travels is k, v and
// segments, and f32 cotangents. All-gather reduces those in f32 too.
func TestContextProgram(t *testing.T) {
	sent := regexp.MustCompile(`"stablehlo\.(collective_permute|all_gather|reduce_scatter)"[^\n]*`)
	typ := regexp.MustCompile(`-> tensor<[0-9x]*x(\w+)>`)
	count := func(n int, how string) (map[string]int, int) {
		text := contextProgram(t, n, n*256, 2, 1, 8, AttentionOptions{Context: how}, nil).StableHLO()
		kinds := map[string]int{}
		for _, at := range sent.FindAllStringSubmatchIndex(text, -1) {
			kinds[text[at[2]:at[3]]+" "+typ.FindStringSubmatch(text[at[0]:])[1]]++
		}
		return kinds, strings.Count(text, "\n")
	}
	// Forward one step before the loop and one in it; backward that, and the
	// cotangents in the loop, in the step after it and home.
	want := map[string]int{"collective_permute bf16": 2 * 2 * 2, "collective_permute i32": 2 * 2, "collective_permute f32": 3 * 2}
	kinds, lines := count(4, ContextRing)
	require.Equal(t, want, kinds)
	kinds, more := count(64, ContextRing)
	require.Equal(t, want, kinds)
	require.InDelta(t, lines, more, 4)

	kinds, _ = count(8, ContextAllGather)
	require.Equal(t, map[string]int{"all_gather bf16": 2 * 2, "all_gather i32": 2, "reduce_scatter f32": 2}, kinds)
}

func compileContext(t *testing.T, topology string, mod *graph.Module, level int) (pjrt.MemoryStats, *hlo.Module) {
	t.Helper()
	x := xlatest.CompileTPU(t, topology, mod.StableHLO(), pjrt.CompileOptions{Partitions: mod.Mesh().Size(), Shardy: true, OptLevel: level})
	stats, err := x.MemoryStats()
	require.NoError(t, err)
	opt, err := x.OptimizedHLO()
	require.NoError(t, err)
	return stats, opt
}

// Sequences of 131072 tokens compile for a slice of eight small chips, both ways.
// Temporaries are those of linear attention: they double with the sequence, and
// are less than the scores of one chunk with one other. By tile kernels, too.
func TestLongContextCompilesForTPU(t *testing.T) {
	const n, S, H, K, h = 8, 128 << 10, 8, 4, 128
	for how, want := range map[string]map[string]bool{
		ContextRing:      {"collective-permute": true},
		ContextAllGather: {"all-gather": true, "reduce-scatter": true},
	} {
		t.Run(how, func(t *testing.T) {
			half, _ := compileContext(t, "v5e:2x4", contextProgram(t, n, S/2, H, K, h, AttentionOptions{Context: how}, nil), pjrt.LevelO0)
			whole, opt := compileContext(t, "v5e:2x4", contextProgram(t, n, S, H, K, h, AttentionOptions{Context: how}, nil), pjrt.LevelO0)
			target, err := kernels.For("v5e")
			require.NoError(t, err)
			tiled, tiles := compileContext(t, "v5e:2x4", contextProgram(t, n, S, H, K, h, AttentionOptions{Context: how}, &tiledBlocks{target: target}), pjrt.LevelO0)
			const scores = 4 * H * (S / 2 / n) * (S / 2 / n)
			t.Logf("temporaries %d MiB, of half the length %d MiB, by tile kernels %d MiB; scores of two chunks %d MiB", whole.Temp>>20, half.Temp>>20, tiled.Temp>>20, scores>>20)
			require.Less(t, max(whole.Temp, tiled.Temp), int64(scores))
			require.InEpsilon(t, 2*half.Temp, whole.Temp, 0.1)
			for _, m := range []*hlo.Module{opt, tiles} {
				kinds := map[string]bool{}
				for _, c := range m.Collectives() {
					kinds[c.Kind()] = true
				}
				require.Equal(t, want, kinds)
			}
		})
	}
}

// What the ring passes on in its loops travels while they compute: the loop over
// blocks is scheduled between start and done.
func TestRingOverlapsOnTPU(t *testing.T) {
	const n = 4
	_, opt := compileContext(t, "v5e:2x2", contextProgram(t, n, 32<<10, 2, 1, 128, AttentionOptions{}, nil), 0)
	inLoop := 0
	for _, c := range opt.Collectives() {
		if c.Times != n-2 {
			continue
		}
		inLoop++
		require.NotNil(t, c.Done, "%s is synchronous", c.Start.Name)
		order := c.Start.Parent.Order()
		between := order[slices.Index(order, c.Start):slices.Index(order, c.Done)]
		require.True(t, slices.ContainsFunc(between, func(i *hlo.Instruction) bool { return i.Opcode == "while" }), "nothing is computed while %s is under way", c.Start.Name)
	}
	require.Equal(t, 3+3+2, inLoop, "k, v and segments both ways, and their cotangents")
}
