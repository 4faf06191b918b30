package generate

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/train"
)

const goldens = "../../models/decoder/testdata/golden"

var ctx = context.Background()

// programs keeps what tests compile, as many need the same.
var programs *compilecache.Cache

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "titan-generate-test-")
	if err != nil {
		panic(err)
	}
	programs = compilecache.Open(dir)
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// machine is one of the devices that tests share.
func machine(t testing.TB) *train.Machine {
	t.Helper()
	c := xlatest.CPU(t)
	m, err := mesh.New([]mesh.Axis{{Name: "device", Size: 1}}, []int{c.LocalDevices()[0].ID})
	require.NoError(t, err)
	return &train.Machine{Client: c, Mesh: m, OnCPU: true, Cache: programs}
}

// opened are the generators of golden models, whose tokens are bytes.
var opened = map[string]*Generator{}

// golden returns the generator of a case, for all tests. It reads 16 tokens at a
// time and its cache has the model's 128 positions, so it has two programs.
func golden(t testing.TB, name string) *Generator {
	t.Helper()
	if opened[name] == nil {
		w, err := OpenHF(filepath.Join(goldens, name))
		require.NoError(t, err)
		defer w.Close()
		g, err := New(ctx, machine(t), w, byteTokenizer(t, ""), Options{})
		require.NoError(t, err)
		g.e.chunk = 16
		require.NoError(t, g.e.begin(128))
		opened[name] = g
	}
	g := *opened[name]
	g.eos = map[int32]bool{}
	g.e.rewind(0)
	return &g
}

// goldenRows are the token sequences of a case's first batch, and the logits of
// each position, as Transformers computes them.
func goldenRows(t testing.TB, name string, vocab int) (tokens [][]int32, logits [][][]float32) {
	t.Helper()
	io, err := safetensors.Open(filepath.Join(goldens, name, "io.safetensors"))
	require.NoError(t, err)
	defer io.Close()
	rawTokens, err := io.Bytes("tokens")
	require.NoError(t, err)
	rawLogits, err := io.Bytes("logits")
	require.NoError(t, err)
	const n = 32
	for r := range 2 {
		var row []int32
		var ls [][]float32
		for i := range n {
			row = append(row, int32(dtype.Float(dtype.S32, rawTokens, r*(n+1)+i)))
			var l []float32
			for v := range vocab {
				l = append(l, float32(dtype.Float(dtype.F32, rawLogits, (r*n+i)*vocab+v)))
			}
			ls = append(ls, l)
		}
		tokens, logits = append(tokens, row), append(logits, ls)
	}
	return tokens, logits
}

// Whatever way a sequence is read, whole or in chunks, with padding or one token
// at a time, the logits of every position are those of the whole model.
func TestReadingEqualsGoldens(t *testing.T) {
	for _, name := range []string{"llama_rope3", "qwen3_tied", "qwen3_moe"} {
		t.Run(name, func(t *testing.T) {
			e := golden(t, name).e
			tokens, logits := goldenRows(t, name, e.config.VocabSize)
			check := func(r, i int, got []float32) {
				t.Helper()
				require.Len(t, got, len(logits[r][i]))
				for v, want := range logits[r][i] {
					if d := math.Abs(float64(want - got[v])); !(d <= 3e-5) {
						require.FailNow(t, "logits differ", "row %d, position %d, token %d: %v, not %v", r, i, v, got[v], want)
					}
				}
			}
			for r, row := range tokens {
				e.rewind(0)
				for i := range row {
					got, err := e.read(ctx, row[i:i+1])
					require.NoError(t, err)
					check(r, i, got)
				}
				// Prompts of all lengths: in one padded chunk, or in a full one and another.
				for n := 1 + r; n <= len(row); n += 2 {
					e.rewind(0)
					got, err := e.read(ctx, row[:n])
					require.NoError(t, err)
					check(r, n-1, got)
				}
				// After padding, the tokens that follow take its place.
				for _, n := range [][]int{{5, 17}, {21}}[r] {
					e.rewind(0)
					_, err := e.read(ctx, row[:n])
					require.NoError(t, err)
					for i := n; i < len(row); i++ {
						got, err := e.read(ctx, row[i:i+1])
						require.NoError(t, err)
						check(r, i, got)
					}
					// Going back, as every sample of a prompt does.
					e.rewind(n)
					got, err := e.read(ctx, row[n:n+1])
					require.NoError(t, err)
					check(r, n, got)
				}
			}
			require.Len(t, e.programs, 2)
		})
	}
}

// Reading writes the cache where it is: nothing of its size is copied for a token.
func TestCacheIsWrittenInPlace(t *testing.T) {
	const length = 4096
	c := tiny
	c.HeadDim = 64 // so that the cache is large beside the scores
	mod, err := BuildExtend(c, dtype.F32, 1, length)
	require.NoError(t, err)
	cache := int64(2 * c.Layers * c.CacheType(1, length, dtype.F32).Bytes())
	p, err := machine(t).Compile(mod)
	require.NoError(t, err)
	defer p.Close()
	m, err := p.Exe.MemoryStats()
	require.NoError(t, err)
	require.Equal(t, cache, m.Alias)
	require.Less(t, m.Temp, cache/4)
}

func TestCompilesForTPU(t *testing.T) {
	topology, err := xlatest.TPU(t).NewTopology("v5e:2x2", nil)
	require.NoError(t, err)
	defer topology.Close()
	mod, err := BuildExtend(tiny, dtype.BF16, 1, 256)
	require.NoError(t, err)
	x, err := topology.Compile([]byte(mod.StableHLO()), pjrt.CompileOptions{})
	require.NoError(t, err)
	defer x.Close()
	m, err := x.MemoryStats()
	require.NoError(t, err)
	require.NotZero(t, m.Alias)
}
