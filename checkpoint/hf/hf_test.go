package hf

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/sharding"
)

var ctx = context.Background()

// memory is a source in memory.
type memory struct {
	entries []safetensors.Entry
	data    map[string][]byte
}

func (m *memory) add(name string, d dtype.DType, shape []int, data []byte) {
	if m.data == nil {
		m.data = map[string][]byte{}
	}
	m.entries = append(m.entries, safetensors.Entry{Name: name, DType: d, Shape: shape})
	m.data[name] = data
}

func (m *memory) Entries() []safetensors.Entry { return m.entries }

func (m *memory) ReadRegion(name string, r sharding.Region, dst []byte) error {
	for _, e := range m.entries {
		if e.Name == name {
			for d := range e.Shape {
				if r.Offset[d] < 0 || r.Offset[d]+r.Size[d] > e.Shape[d] {
					return fmt.Errorf("%v of %v", r, e)
				}
			}
			return sharding.CopyRegion(dst, r, m.data[name], sharding.Whole(e.Shape), e.DType.Size())
		}
	}
	return fmt.Errorf("no %q", name)
}

func readAll(t *testing.T, src safetensors.Source) map[string][]byte {
	out := map[string][]byte{}
	for _, e := range src.Entries() {
		out[e.Name] = make([]byte, e.Bytes())
		require.NoError(t, src.ReadRegion(e.Name, sharding.Whole(e.Shape), out[e.Name]), e.Name)
	}
	return out
}

func f32s(n int, f func(i int) float32) []byte {
	out := make([]byte, 0, 4*n)
	for i := range n {
		out = dtype.AppendFloat(out, dtype.F32, float64(f(i)))
	}
	return out
}

const moeTable = `
# A decoder with stacked layers, the first of them dense.
embed        = model.embed_tokens.weight : v d -> v d
head         = lm_head.weight            : d v -> v d
norm         = model.norm.weight
layers.wq    = model.layers.{layer}.self_attn.q_proj.weight : layer d h k -> (h k) d
layers.wo    = model.layers.{layer}.self_attn.o_proj.weight : layer h k d -> d (h k)
layers.bq    = model.layers.{layer}.self_attn.q_proj.bias   : layer h k -> (h k)
dense.up     = model.layers.{layer}.mlp.up_proj.weight      : layer d f -> f d | layer=0
moe.router   = model.layers.{layer}.mlp.gate.weight         : layer d e -> e d | layer=1,2
moe.up       = model.layers.{layer}.mlp.experts.{e}.up_proj.weight : layer e d f -> f d | layer=1,2
moe.w_{g}    = model.layers.{layer}.mlp.gate_up_proj        : layer e d f -> e d (f g) | g=gate,up layer=1,2
ignore model.layers.{layer}.self_attn.rotary_emb.inv_freq
`

const (
	nv, nd, nl, nh, nk, ne, nf = 7, 6, 3, 2, 4, 3, 5
)

func moeTensors() *memory {
	m := new(memory)
	add := func(name string, shape ...int) {
		n := sharding.Whole(shape).Elements()
		m.add(name, dtype.F32, shape, f32s(n, func(i int) float32 { return float32(1000*len(m.entries) + i) }))
	}
	add("embed", nv, nd)
	add("head", nd, nv)
	add("norm", nd)
	add("layers.wq", nl, nd, nh, nk)
	add("layers.wo", nl, nh, nk, nd)
	add("layers.bq", nl, nh, nk)
	add("dense.up", 1, nd, nf)
	add("moe.router", 2, nd, ne)
	add("moe.up", 2, ne, nd, nf)
	add("moe.w_gate", 2, ne, nd, nf)
	add("moe.w_up", 2, ne, nd, nf)
	return m
}

// The names and places of single elements, worked out by hand.
func TestMoEByHand(t *testing.T) {
	m, err := Parse(moeTable)
	require.NoError(t, err)
	ours := moeTensors()
	b, err := m.Bind(ours.entries)
	require.NoError(t, err)
	out, err := b.Export(ours, dtype.Invalid)
	require.NoError(t, err)
	theirs := readAll(t, out)
	shapes := map[string][]int{}
	for _, e := range out.Entries() {
		shapes[e.Name] = e.Shape
	}
	require.Len(t, shapes, 3+3*3+1+2+2*3+2)
	for _, c := range []struct {
		name  string
		shape []int
		at    int
		ours  string
		from  int
	}{
		{"model.embed_tokens.weight", []int{nv, nd}, 3*nd + 2, "embed", 3*nd + 2},
		{"lm_head.weight", []int{nv, nd}, 3*nd + 2, "head", 2*nv + 3},
		{"model.norm.weight", []int{nd}, 4, "norm", 4},
		// row h·K+k, column d
		{"model.layers.2.self_attn.q_proj.weight", []int{nh * nk, nd}, (1*nk+3)*nd + 5, "layers.wq", ((2*nd+5)*nh+1)*nk + 3},
		{"model.layers.1.self_attn.o_proj.weight", []int{nd, nh * nk}, 5*nh*nk + 1*nk + 3, "layers.wo", ((1*nh+1)*nk+3)*nd + 5},
		{"model.layers.1.self_attn.q_proj.bias", []int{nh * nk}, 1*nk + 2, "layers.bq", (1*nh+1)*nk + 2},
		{"model.layers.0.mlp.up_proj.weight", []int{nf, nd}, 4*nd + 1, "dense.up", 1*nf + 4},
		{"model.layers.2.mlp.gate.weight", []int{ne, nd}, 2*nd + 3, "moe.router", (1*nd+3)*ne + 2},
		{"model.layers.1.mlp.experts.2.up_proj.weight", []int{nf, nd}, 4*nd + 1, "moe.up", ((0*ne+2)*nd+1)*nf + 4},
		// gate and up interleaved in the last dimension
		{"model.layers.2.mlp.gate_up_proj", []int{ne, nd, 2 * nf}, (2*nd+1)*2*nf + 3*2 + 0, "moe.w_gate", ((1*ne+2)*nd+1)*nf + 3},
		{"model.layers.2.mlp.gate_up_proj", []int{ne, nd, 2 * nf}, (2*nd+1)*2*nf + 3*2 + 1, "moe.w_up", ((1*ne+2)*nd+1)*nf + 3},
	} {
		require.Equal(t, c.shape, shapes[c.name], c.name)
		require.Equal(t, ours.data[c.ours][4*c.from:4*c.from+4], theirs[c.name][4*c.at:4*c.at+4], c.name)
	}

	// And back.
	written := &memory{data: theirs, entries: out.Entries()}
	written.add("model.layers.1.self_attn.rotary_emb.inv_freq", dtype.F32, []int{1}, make([]byte, 4))
	in, err := b.Import("written", written)
	require.NoError(t, err)
	require.Equal(t, ours.entries, in.Entries())
	require.Equal(t, ours.data, readAll(t, in))
}

// random makes a random rule with the content of both sides, element by element
// from the meaning of the notation.
type random struct {
	rule         Rule
	ours, theirs *memory
}

func makeRandom(rng *rand.Rand, d dtype.DType) random {
	n := 1 + rng.IntN(5)
	axes := make([]string, n)
	size := make([]int, n)
	var ourName, theirName, ourDims []int
	var theirDims [][]int
	for a := range axes {
		axes[a] = string(rune('a' + a))
		size[a] = 1 + rng.IntN(4)
		if rng.IntN(4) == 0 {
			ourName = append(ourName, a)
		} else {
			ourDims = append(ourDims, a)
		}
	}
	for _, a := range rng.Perm(n) {
		switch k := len(theirDims); {
		case rng.IntN(4) == 0:
			theirName = append(theirName, a)
		case k > 0 && rng.IntN(2) == 0:
			theirDims[k-1] = append(theirDims[k-1], a)
		default:
			theirDims = append(theirDims, []int{a})
		}
	}
	rng.Shuffle(len(ourDims), func(i, j int) { ourDims[i], ourDims[j] = ourDims[j], ourDims[i] })
	r := random{rule: Rule{Ours: "t", Theirs: "m"}, ours: new(memory), theirs: new(memory)}
	for _, a := range ourName {
		r.rule.Ours += ".{" + axes[a] + "}"
	}
	for _, a := range theirName {
		r.rule.Theirs += ".{" + axes[a] + "}"
	}
	value := func(a, i int) string { return fmt.Sprint(i) }
	if len(ourName) > 0 && rng.IntN(2) == 0 {
		a := ourName[0]
		v := []string{"up", "down", "left", "right"}[:size[a]]
		r.rule.Values = map[string][]string{axes[a]: v}
		value = func(b, i int) string {
			if a == b {
				return v[i]
			}
			return fmt.Sprint(i)
		}
	}
	for _, a := range ourDims {
		r.rule.Axes += axes[a] + " "
	}
	r.rule.Axes += "->"
	for _, d := range theirDims {
		words := make([]string, len(d))
		for i, a := range d {
			words[i] = axes[a]
		}
		if s := strings.Join(words, " "); len(d) > 1 {
			r.rule.Axes += " (" + s + ")"
		} else {
			r.rule.Axes += " " + s
		}
	}
	if len(ourDims) == 0 && len(theirDims) == 0 {
		r.rule.Axes = "->"
	}
	total := 1
	for _, s := range size {
		total *= s
	}
	put := func(m *memory, base string, name []int, dims [][]int, at []int, element []byte) {
		for _, a := range name {
			base += "." + value(a, at[a])
		}
		shape, offset := []int{}, 0
		for _, d := range dims {
			extent := 1
			index := 0
			for _, a := range d {
				index = index*size[a] + at[a]
				extent *= size[a]
			}
			offset = offset*extent + index
			shape = append(shape, extent)
		}
		if m.data[base] == nil {
			m.add(base, d, shape, make([]byte, sharding.Whole(shape).Elements()*d.Size()))
		}
		copy(m.data[base][offset*d.Size():], element)
	}
	var single [][]int
	for _, a := range ourDims {
		single = append(single, []int{a})
	}
	for i := range total {
		at := make([]int, n)
		for a, left := 0, i; a < n; a++ {
			at[a] = left % size[a]
			left /= size[a]
		}
		element := dtype.AppendFloat(nil, d, float64(i%113))
		put(r.ours, "t", ourName, single, at, element)
		put(r.theirs, "m", theirName, theirDims, at, element)
	}
	return r
}

// Any rule, read in any regions, in both directions, gives what the notation
// means.
func TestRandomRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		d := []dtype.DType{dtype.F32, dtype.BF16, dtype.F64, dtype.F8E4M3}[rng.IntN(4)]
		r := makeRandom(rng, d)
		b, err := Mapping{Rules: []Rule{r.rule}}.Bind(r.ours.entries)
		require.NoError(t, err, "%+v", r.rule)
		in, err := b.Import("x", r.theirs)
		require.NoError(t, err, "%+v", r.rule)
		out, err := b.Export(r.ours, dtype.Invalid)
		require.NoError(t, err)
		require.Len(t, out.Entries(), len(r.theirs.entries))
		for _, c := range []struct {
			got  safetensors.Source
			want *memory
		}{{in, r.ours}, {out, r.theirs}} {
			require.Equal(t, c.want.data, readAll(t, c.got), "%+v", r.rule)
			for range 4 {
				e := c.want.entries[rng.IntN(len(c.want.entries))]
				region := sharding.Whole(e.Shape)
				for k, s := range e.Shape {
					region.Offset[k] = rng.IntN(s + 1)
					region.Size[k] = rng.IntN(s - region.Offset[k] + 1)
				}
				got := make([]byte, region.Elements()*d.Size())
				want := make([]byte, len(got))
				require.NoError(t, c.got.ReadRegion(e.Name, region, got))
				require.NoError(t, c.want.ReadRegion(e.Name, region, want))
				require.Equal(t, want, got, "%+v %v", r.rule, region)
			}
		}
	}
}

// Large enough for tiles and runs to matter.
func TestTransposedTensor(t *testing.T) {
	const rows, columns = 131, 77
	for _, d := range []dtype.DType{dtype.F8E5M2, dtype.F16, dtype.F32, dtype.F64} {
		ours := new(memory)
		data := make([]byte, rows*columns*d.Size())
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		ours.add("w", d, []int{rows, columns}, data)
		b, err := Mapping{Rules: []Rule{{Ours: "w", Theirs: "w.weight", Axes: "a b -> b a"}}}.Bind(ours.entries)
		require.NoError(t, err)
		out, err := b.Export(ours, dtype.Invalid)
		require.NoError(t, err)
		got := readAll(t, out)["w.weight"]
		for i := range rows {
			for j := range columns {
				a, b := (i*columns+j)*d.Size(), (j*rows+i)*d.Size()
				require.Equal(t, data[a:a+d.Size()], got[b:b+d.Size()])
			}
		}
	}
}

func TestConvert(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	values := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 3.3895314e38, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.NaN()), 1.00390625, 1.01171875}
	for range 20000 {
		values = append(values, math.Float32frombits(rng.Uint32()))
	}
	raw := f32s(len(values), func(i int) float32 { return values[i] })
	for _, to := range []dtype.DType{dtype.BF16, dtype.F16, dtype.F64, dtype.F8E4M3} {
		want, err := dtype.FromFloat32(to, values)
		require.NoError(t, err)
		got, err := convert(raw, dtype.F32, to)
		require.NoError(t, err)
		require.Equal(t, want, got, "%v", to)
		back, err := convert(got, to, dtype.F32)
		require.NoError(t, err)
		for i := range values {
			x, y := dtype.Float(to, got, i), dtype.Float(dtype.F32, back, i)
			require.True(t, float64(float32(x)) == y || math.IsNaN(x) && math.IsNaN(y), "%v %v", x, y)
		}
	}
	_, err := convert(nil, dtype.F32, dtype.S32)
	require.ErrorContains(t, err, "f32 cannot become s32")
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"\nwq model.q":             `hf: line 2: "wq model.q" has no "="`,
		"a = b :":                  "nothing follows the colon",
		"a = b : x y":              `"x y" has no ->`,
		"a = b : x y -> (x y":      "a parenthesis is not closed",
		"a = b : x y -> ((x) y)":   `"(" does not belong there`,
		"a = b : x -> x ()":        `")" does not belong there`,
		"a = b : x -> x 1":         `"1" does not belong there`,
		"a = b : (x y) -> x y":     "(x y) cannot be split on our side",
		"a = b : x y -> x":         `axis "y" is missing on their side of "a" = "b"`,
		"a = b : x -> x y":         `axis "y" is missing on our side`,
		"a = b.{l} : x -> x":       `axis "l" is missing on our side`,
		"a.{l} = b : x -> x":       `axis "l" is missing on their side`,
		"a = b : x x -> x":         `axis "x" stands 2 times on our side`,
		"a = b.{x} : x -> x":       `axis "x" stands 2 times on their side`,
		"a = b.{x}.{x} : x ->":     "has {x} twice",
		"a = b.{1} : x ->":         "{1} is not the name of an axis",
		"a = b.{x : x ->":          "is not the name of a tensor",
		"a b = c":                  "is not the name of a tensor",
		" = c":                     "is not the name of a tensor",
		"a = b : x -> x | q=1":     `there are values for "q", which stands in neither name`,
		"a = b.{x} : x -> | x":     "is not of the form axis=value",
		"a = b.{x} : x -> | x=":    "is not of the form axis=value",
		"a=b.{x} : x -> | x=1 x=2": "has its values twice",
		"ignore a{b":               "line 1",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestBindErrors(t *testing.T) {
	entry := func(name string, shape ...int) safetensors.Entry {
		return safetensors.Entry{Name: name, DType: dtype.F32, Shape: shape}
	}
	for _, c := range []struct {
		table   string
		tensors []safetensors.Entry
		want    string
	}{
		{"a = x", []safetensors.Entry{entry("a", 2), entry("ab", 2)}, `no rule is for "ab"; the nearest is "a"`},
		{"a = x\nb = y", []safetensors.Entry{entry("a", 2)}, `the rule for "b" fits no tensor`},
		{"a = x : i j -> j i", []safetensors.Entry{entry("a", 2)}, `"a" has shape [2], its rule has 2 dimensions`},
		{"a.{l} = x.{l}", []safetensors.Entry{entry("a.0", 2), entry("a.1", 3)}, `"a.0" is f32[2] and "a.1" is f32[3], but one rule is for both`},
		{"a.{l} = x.{l}", []safetensors.Entry{entry("a.0", 2), entry("a.2", 2)}, `fits others, but "a.1" is missing`},
		{"a.{l} = x.{l} | l=up,down", []safetensors.Entry{entry("a.up", 2)}, `fits others, but "a.down" is missing`},
		{"a = x\n{g} = y.{g} | g=a", []safetensors.Entry{entry("a", 2)}, `"a" has two rules`},
		{"a = x\nb = x", []safetensors.Entry{entry("a", 2), entry("b", 2)}, `both "a" and "b" would become "x"`},
		{"a = x.{l} : l -> | l=1,2", []safetensors.Entry{entry("a", 3)}, `axis "l" of "a" has size 3, but 2 values are given`},
		{"a = x.{l} : l -> | l=1,1", []safetensors.Entry{entry("a", 2)}, `has the value "1" twice`},
		{"a = x", []safetensors.Entry{entry("a", 2), entry("a", 2)}, `two tensors are named "a"`},
	} {
		m, err := Parse(c.table)
		require.NoError(t, err, c.table)
		_, err = m.Bind(c.tensors)
		require.ErrorContains(t, err, c.want, c.table)
		require.ErrorContains(t, err, "hf: the mapping does not fit the model")
	}
}

func TestImportErrors(t *testing.T) {
	m, err := Parse(moeTable)
	require.NoError(t, err)
	ours := moeTensors()
	b, err := m.Bind(ours.entries)
	require.NoError(t, err)
	theirs := new(memory)
	for _, e := range b.Theirs() {
		switch e.Name {
		case "lm_head.weight":
			continue
		case "model.norm.weight":
			e.Shape = []int{nd + 1}
		case "model.embed_tokens.weight":
			e.DType = dtype.S32
		}
		theirs.add(e.Name, e.DType, e.Shape, make([]byte, e.Bytes()))
	}
	theirs.add("model.vision.weight", dtype.F32, []int{1}, make([]byte, 4))
	_, err = b.Import("Qwen/X", theirs)
	for _, want := range []string{
		"hf: Qwen/X does not fit the model: ", `"lm_head.weight" is missing`, `"model.norm.weight" has shape [7], the model wants [6]`,
		`"model.embed_tokens.weight" is s32, which cannot become f32`, `the model has no place for "model.vision.weight"`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = b.Export(&memory{}, dtype.Invalid)
	require.ErrorContains(t, err, `"embed" is missing`)
	_, err = b.Export(ours, dtype.S8)
	require.ErrorContains(t, err, "cannot be exported as s8")

	out, err := b.Export(ours, dtype.Invalid)
	require.NoError(t, err)
	require.ErrorContains(t, out.ReadRegion("lm_heed.weight", sharding.Whole(nil), nil), `the nearest is "lm_head.weight"`)
	require.ErrorContains(t, out.ReadRegion("lm_head.weight", sharding.Whole([]int{nv}), nil), "the ranks differ")
	require.ErrorContains(t, out.ReadRegion("lm_head.weight", sharding.Whole([]int{nv, nd + 1}), nil), "reaches outside")
	require.ErrorContains(t, out.ReadRegion("lm_head.weight", sharding.Whole([]int{nv, nd}), nil), "the buffer has 0")
}
