package hlo

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func load(t testing.TB, name string) (*Module, []byte) {
	t.Helper()
	blob, err := os.ReadFile("testdata/" + name + ".pb")
	require.NoError(t, err)
	m, err := Parse(blob)
	require.NoError(t, err)
	return m, blob
}

var (
	instructionLine = regexp.MustCompile(`^  (ROOT )?%(\S+) = (.*?) ([a-z][a-z0-9-]*)\((.*?)\)(?:, (.*))?$`)
	computationLine = regexp.MustCompile(`^(ENTRY )?%(\S+) \(.*\) -> .* \{$`)
	attribute       = regexp.MustCompile(`(\w+)=(\{(?:[^{}]|\{[^{}]*\})*\}|[^,{]+)`)
	remark          = regexp.MustCompile(`/\*.*?\*/`)
	source          = regexp.MustCompile(`op_name="([^"]*)"(?: stack_frame_id=(\d+))?`)
)

// TestAgainstXLA compares every instruction with what XLA's own reader printed
// for the same blob (testdata/*.hlo).
func TestAgainstXLA(t *testing.T) {
	for _, name := range []string{"cpu_loop", "v5e_loop", "v5e_manual", "cpu_a2a_p8"} {
		t.Run(name, func(t *testing.T) {
			m, _ := load(t, name)
			text, err := os.ReadFile("testdata/" + name + ".hlo")
			require.NoError(t, err)
			byName := map[string]*Computation{}
			for _, c := range m.Computations {
				byName[c.Name] = c
			}
			var comp *Computation
			var order []string
			seen, instructions := 0, 0
			for _, line := range strings.Split(remark.ReplaceAllString(string(text), ""), "\n") {
				if h := computationLine.FindStringSubmatch(line); h != nil {
					comp = byName[h[2]]
					require.NotNil(t, comp, line)
					require.Equal(t, h[1] != "", comp == m.Entry, line)
					seen++
					order = nil
					continue
				}
				if line == "}" {
					require.Equal(t, order, names(comp.Order()), "order of execution of %s", comp.Name)
					require.Len(t, comp.Instructions, len(order))
					continue
				}
				f := instructionLine.FindStringSubmatch(line)
				if f == nil {
					continue
				}
				instructions++
				order = append(order, f[2])
				at := slices.IndexFunc(comp.Instructions, func(i *Instruction) bool { return i.Name == f[2] })
				require.GreaterOrEqual(t, at, 0, line)
				checkInstruction(t, comp.Instructions[at], f, line)
			}
			require.Len(t, m.Computations, seen)
			require.Greater(t, instructions, 10)
		})
	}
}

func checkInstruction(t *testing.T, i *Instruction, f []string, line string) {
	require.Equal(t, f[1] != "", i == i.Parent.Root, line)
	require.Equal(t, f[3], i.Shape.String(), line)
	require.Equal(t, f[4], i.Opcode, line)
	switch i.Opcode {
	case "parameter":
		require.Equal(t, f[5], fmt.Sprint(i.ParameterNumber), line)
	case "constant":
		if i.hasConstant {
			require.Equal(t, f[5], fmt.Sprint(i.constant), line)
		}
	default:
		require.Equal(t, f[5], strings.Join(prefixed(names(i.Operands)), ", "), line)
	}
	attrs := f[6]
	if k := strings.Index(attrs, "backend_config="); k >= 0 {
		require.Equal(t, attrs[k+len("backend_config="):], string(i.BackendConfig), line)
		attrs = attrs[:k]
	} else {
		require.Empty(t, i.BackendConfig, line)
	}
	want := map[string]string{}
	for _, a := range attribute.FindAllStringSubmatch(attrs, -1) {
		want[a[1]] = a[2]
	}
	require.Equal(t, want["channel_id"] != "", i.ChannelID != 0, line)
	if i.ChannelID != 0 {
		require.Equal(t, want["channel_id"], fmt.Sprint(i.ChannelID), line)
	}
	require.Equal(t, want["replica_groups"], orEmpty(i.ReplicaGroups, formatGroups), line)
	require.Equal(t, want["dimensions"], orEmpty(i.Dims, func(d []int) string { return "{" + joinInts(d) + "}" }), line)
	require.Equal(t, want["use_global_device_ids"] == "true", i.UseGlobalDeviceIDs, line)
	require.Equal(t, want["kind"], i.FusionKind, line)
	require.Equal(t, want["direction"], i.comparison, line)
	require.Equal(t, want["source_target_pairs"], orEmpty(i.SourceTargetPairs, func(ps [][2]int) string {
		var g [][]int
		for _, p := range ps {
			g = append(g, p[:])
		}
		return formatGroups(g)
	}), line)
	require.Equal(t, want["control-predecessors"] != "" || strings.Contains(attrs, "predecessors="), len(i.ControlPredecessors) > 0, line)
	for attr, c := range map[string]*Computation{"calls": at(i.Called, 0), "to_apply": at(i.Called, 0), "body": i.Body(), "condition": i.Condition()} {
		if want[attr] != "" {
			require.NotNil(t, c, line)
			require.Equal(t, want[attr], "%"+c.Name, line)
		}
	}
	if d := i.Dot; d != nil {
		require.Equal(t, want["lhs_contracting_dims"], "{"+joinInts(d.LHSContract)+"}", line)
		require.Equal(t, want["rhs_contracting_dims"], "{"+joinInts(d.RHSContract)+"}", line)
	}
	src := source.FindStringSubmatch(attrs)
	if src == nil {
		require.Empty(t, i.Metadata.OpName, line)
		return
	}
	require.Equal(t, src[1], i.Metadata.OpName, line)
	if src[2] != "" {
		wantLine := map[string]int{"call.1/gather_weight": 41, "call.1/project": 42}[src[1]]
		require.Equal(t, Metadata{OpName: src[1], SourceFile: "model.go", SourceLine: wantLine}, i.Metadata, line)
	}
}

func names(is []*Instruction) []string {
	var s []string
	for _, i := range is {
		s = append(s, i.Name)
	}
	return s
}

func prefixed(s []string) []string {
	for i := range s {
		s[i] = "%" + s[i]
	}
	return s
}

func at(c []*Computation, k int) *Computation {
	if k < len(c) {
		return c[k]
	}
	return nil
}

func orEmpty[T any](xs []T, f func([]T) string) string {
	if len(xs) == 0 {
		return ""
	}
	return f(xs)
}

func TestSignature(t *testing.T) {
	full, blob := load(t, "cpu_loop")
	m, err := ParseSignature(blob)
	require.NoError(t, err)
	require.Nil(t, m.Entry)
	require.Empty(t, m.Computations)
	for _, m := range []*Module{m, full} {
		require.Equal(t, "loop", m.Name)
		require.Equal(t, []string{"f32[6,16,64]{2,1,0}", "f32[8,64]{1,0}", "f32[8,64]{1,0}"}, []string{m.Parameters[0].String(), m.Parameters[1].String(), m.Parameters[2].String()})
		require.Equal(t, "(f32[6,16,64]{2,1,0}, f32[8,64]{1,0})", m.Result.String())
		require.EqualValues(t, 6*16*64*4, m.Parameters[0].Bytes())
		require.EqualValues(t, 6*16*64*4+8*64*4, m.Result.Bytes())
		require.Equal(t, []Alias{{ResultIndex: []int{0}, Parameter: 0}, {ResultIndex: []int{1}, Parameter: 2}}, m.Aliases)
		require.Equal(t, []bool{true, false, true}, m.Donated())
		require.Equal(t, 8, m.Partitions)
		require.Equal(t, 1, m.Replicas)
	}
	require.Equal(t, "{devices=[1,4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}", full.Entry.Parameters()[0].Sharding.String())
	require.Equal(t, "{devices=[2,1,4]0,2,4,6,1,3,5,7 last_tile_dim_replicate}", full.Entry.Parameters()[1].Sharding.String())
}

// TestWalk counts what one run executes. The CPU compiler notes the trip count,
// the TPU compiler at its quick level does not, so there it is inferred.
func TestWalk(t *testing.T) {
	for name, noted := range map[string]bool{"cpu_loop": true, "v5e_loop": false} {
		m, _ := load(t, name)
		count := map[string]int64{}
		m.Walk(func(i *Instruction, times int64) {
			if k := i.Collective(); k != "" {
				count[k] += times
			}
			if i.Opcode == "while" {
				_, ok := i.notedTripCount()
				require.Equal(t, noted, ok)
				n, ok := i.inferTripCount()
				require.True(t, ok, "inferred")
				require.EqualValues(t, 6, n)
			}
		})
		require.Equal(t, map[string]int64{"all-gather": 6, "collective-permute": 6}, count, name)
	}
}

// TestCollectives lists each collective once in each of the forms compilers
// write: plain, start and done, wrapped in an async computation, and spread over
// fusions.
func TestCollectives(t *testing.T) {
	type row struct {
		kind  string
		async bool
		times int64
	}
	for name, want := range map[string][]row{
		"cpu_loop":     {{"all-gather", false, 6}, {"collective-permute", false, 6}},
		"v5e_loop":     {{"all-gather", false, 6}, {"collective-permute", true, 6}},
		"v5e_manual":   {{"all-gather", false, 1}, {"all-reduce", false, 1}},
		"tpu7x_manual": {{"all-gather", true, 1}, {"all-reduce", false, 1}},
		"v5e_overlap":  {{"all-gather", false, 1}, {"all-gather", true, 1}, {"all-gather", true, 1}, {"all-gather", true, 1}},
	} {
		m, _ := load(t, name)
		var got []row
		for _, c := range m.Collectives() {
			got = append(got, row{c.Kind(), c.Start != c.Op || c.Done != nil, c.Times})
			if c.Start != c.Op || c.Done != nil {
				require.NotNil(t, c.Done, "%s: %v", name, c.Start)
				order := c.Start.Parent.Order()
				require.Less(t, slices.Index(order, c.Start), slices.Index(order, c.Done))
			}
		}
		require.Equal(t, want, got, name)
	}
	m, _ := load(t, "v5e_overlap")
	c := m.Collectives()[1]
	require.Equal(t, "async-collective-start", c.Start.Name)
	require.Equal(t, "async-collective-done", c.Done.Name)
	require.Equal(t, "bf16[4096,4096]", c.Op.Shape.Short())
	require.Equal(t, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, c.Op.ReplicaGroups)
}

// TestAsync reads a program with an asynchronous collective in the form that
// libtpu writes and older readers refuse.
func TestAsync(t *testing.T) {
	m, _ := load(t, "tpu7x_manual")
	require.NotEmpty(t, m.Collectives())
	opcodes := map[string]int{}
	for i := range m.All() {
		opcodes[i.Opcode]++
	}
	require.Equal(t, opcodes["async-start"], opcodes["async-done"])
	require.Positive(t, opcodes["async-start"])
	require.Contains(t, m.Text(), "ENTRY %main.0_spmd")
}

func TestEstimatedCycles(t *testing.T) {
	m, _ := load(t, "v5e_manual")
	found := false
	for i := range m.All() {
		if n, ok := i.EstimatedCycles(); ok && i.Name == "multiply_reduce_fusion" {
			require.EqualValues(t, 5738, n)
			found = true
		}
	}
	require.True(t, found)
	unknown := &Instruction{BackendConfig: []byte(`{"window_config":{"estimated_cycles":"9223372036854775807"}}`)}
	_, ok := unknown.EstimatedCycles()
	require.False(t, ok)
}

func TestIota(t *testing.T) {
	for _, c := range []struct{ dims, perm, want []int }{
		{[]int{8}, nil, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{[]int{4, 2}, []int{1, 0}, []int{0, 2, 4, 6, 1, 3, 5, 7}},
		{[]int{2, 2, 2}, []int{2, 0, 1}, []int{0, 2, 4, 6, 1, 3, 5, 7}},
		{[]int{2, 3}, []int{0, 1}, []int{0, 1, 2, 3, 4, 5}},
	} {
		got, err := Iota(c.dims, c.perm)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, c := range [][2][]int{{{2, 0}, nil}, {{2, 2}, {0}}, {{2, 2}, {0, 0}}, {{1 << 20, 1 << 20}, nil}, {{-1}, nil}} {
		_, err := Iota(c[0], c[1])
		require.Error(t, err, "%v", c)
	}
}

// TestIotaGroups reads the transposed-iota form, which compilers choose for
// large meshes.
func TestIotaGroups(t *testing.T) {
	num := func(b []byte, f protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), v)
	}
	iota := num(num(nil, 1, 2), 2, 4)
	iota = protowire.AppendBytes(protowire.AppendTag(iota, 3, protowire.BytesType), []byte{4, 2})
	iota = protowire.AppendBytes(protowire.AppendTag(iota, 4, protowire.BytesType), []byte{1, 0})
	list := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), iota)
	g, err := parseDeviceList(list)
	require.NoError(t, err)
	require.Equal(t, [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}}, g)
}

func TestMalformed(t *testing.T) {
	_, err := Parse(nil)
	require.ErrorContains(t, err, "hlo: malformed module")
	_, blob := load(t, "cpu_loop")
	for n := 1; n < len(blob); n += 97 { // cut short
		_, _ = Parse(blob[:n])
	}
	for k := range 4000 { // one byte changed
		b := slices.Clone(blob)
		b[(k*7919)%len(b)] ^= byte(1 + k*31%255)
		if m, err := Parse(b); err == nil {
			_ = m.Text()
			m.walk(func(*Instruction, int64) {}, 10000)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, n := range []string{"cpu_loop", "v5e_manual", "tpu7x_manual"} {
		b, err := os.ReadFile("testdata/" + n + ".pb")
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		_ = m.Text()
		_ = m.Donated()
		m.walk(func(*Instruction, int64) {}, 10000)
	})
}
