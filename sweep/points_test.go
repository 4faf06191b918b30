package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// row is what a test looks at of a point.
type row struct {
	id, topology, mesh    string
	global, local, passes int
}

func rows(s *Sweep) []row {
	var out []row
	for _, p := range s.Points {
		out = append(out, row{p.ID, p.Topology, p.MeshString(), p.GlobalBatch, p.LocalBatch, p.Passes})
	}
	return out
}

func points(t *testing.T, spec Spec) *Sweep {
	t.Helper()
	if spec.Source == Run && spec.Steps == 0 {
		spec.Steps, spec.Warmup = 4, 1
	}
	s, err := New(spec)
	require.NoError(t, err)
	return s
}

// The published series: 32 sequences a chip, copies on further slices.
func TestWeakOnPods(t *testing.T) {
	s := points(t, Spec{Recipe: "qwen3_235b_a22b", Source: Plan, Mode: Weak, Chips: []int{8192, 64, 256, 1024, 2048}})
	require.Equal(t, []row{
		{"tpu7x-4x4x4", "tpu7x:4x4x4", "dp_replicate=1 × dp_shard=128", 2048, 16, 1},
		{"tpu7x-4x8x8", "tpu7x:4x8x8", "dp_replicate=2 × dp_shard=256", 8192, 16, 1},
		{"tpu7x-8x8x16", "tpu7x:8x8x16", "dp_replicate=8 × dp_shard=256", 32768, 16, 1},
		{"tpu7x-8x8x16-by-2", "tpu7x:8x8x16*2", "dp_replicate=16 × dp_shard=256", 65536, 16, 1},
		{"tpu7x-8x8x16-by-8", "tpu7x:8x8x16*8", "dp_replicate=64 × dp_shard=256", 262144, 16, 1},
	}, rows(s))
	last := s.Points[4]
	require.Equal(t, 8192, last.Chips)
	require.Equal(t, 16384, last.Devices)
	require.EqualValues(t, 262144*4096, last.Tokens)
	require.Equal(t, "64 copies of the parameters over 256 devices each; one pass of 16 sequences a device as in the recipe", last.Adapted)
	require.Equal(t, "tpu7x", s.Kind)
	require.Equal(t, "qwen3_moe 235B-A22B", s.Model)
	for _, p := range s.Points {
		require.Equal(t, 32*p.Chips, p.GlobalBatch)
		require.Equal(t, Pending, p.Status)
	}
}

// A step keeps its sequences: passes first, then fewer sequences at a time.
func TestStrong(t *testing.T) {
	s := points(t, Spec{Recipe: "qwen3_moe_debug", Source: Run, Mode: Strong, Devices: []int{1, 2, 3, 4, 16}})
	require.Equal(t, []row{
		{"devices-1", "", "dp_replicate=1 × dp_shard=1", 8, 1, 8},
		{"devices-2", "", "dp_replicate=1 × dp_shard=2", 8, 1, 4},
		{"devices-3", "", "", 0, 0, 0},
		{"devices-4", "", "dp_replicate=1 × dp_shard=4", 8, 1, 2},
		{"devices-16", "", "", 0, 0, 0},
	}, rows(s))
	require.Equal(t, Impossible, s.Points[2].Status)
	require.Contains(t, s.Points[2].Error, "a step of 8 sequences is no multiple of 3 data-parallel devices")
	require.Equal(t, Impossible, s.Points[4].Status)
	require.Contains(t, s.Points[4].Error, "less than one each")

	s = points(t, Spec{Recipe: "qwen3_moe_debug", Set: []string{"training.local_batch_size=6", "mesh.devices=4"}, Source: Run, Mode: Strong, Devices: []int{1, 2, 8}})
	require.Equal(t, []row{
		{"devices-1", "", "dp_replicate=1 × dp_shard=1", 24, 6, 4},
		{"devices-2", "", "dp_replicate=1 × dp_shard=2", 24, 6, 2},
		{"devices-8", "", "dp_replicate=2 × dp_shard=4", 24, 3, 1},
	}, rows(s))

	// A pipeline needs as many passes as it has stages.
	s = points(t, Spec{Recipe: "qwen3_moe_debug", Set: []string{"training.local_batch_size=4", "training.global_batch_size=32", "parallelism.pipeline_parallel_degree=2"}, Source: Run, Mode: Strong, Devices: []int{2, 8, 16}})
	require.Equal(t, []row{
		{"devices-2", "", "pp=2 × dp_replicate=1 × dp_shard=1", 32, 4, 8},
		{"devices-8", "", "pp=2 × dp_replicate=1 × dp_shard=4", 32, 4, 2},
		{"devices-16", "", "pp=2 × dp_replicate=2 × dp_shard=4", 32, 2, 2},
	}, rows(s))
}

// A device keeps its sequences and its passes.
func TestWeakKeepsPasses(t *testing.T) {
	s := points(t, Spec{Recipe: "qwen3_moe_debug", Set: []string{"training.global_batch_size=24"}, Source: Run, Mode: Weak, Devices: []int{1, 4}})
	require.Equal(t, []row{
		{"devices-1", "", "dp_replicate=1 × dp_shard=1", 3, 1, 3},
		{"devices-4", "", "dp_replicate=1 × dp_shard=4", 12, 1, 3},
	}, rows(s))
}

// Values change what is kept, and all combinations are tried.
func TestVary(t *testing.T) {
	s := points(t, Spec{Recipe: "qwen3_moe_debug", Source: Run, Mode: Weak, Devices: []int{4, 8}, Vary: []Vary{
		{"training.local_batch_size", []string{"1", "2"}}, {"parallelism.expert_parallel_degree", []string{"1", "8"}},
	}})
	require.Equal(t, []row{
		{"devices-4_local_batch_size-1_expert_parallel_degree-1", "", "dp_replicate=1 × dp_shard=4", 4, 1, 1},
		{"devices-8_local_batch_size-1_expert_parallel_degree-1", "", "dp_replicate=1 × dp_shard=8", 8, 1, 1},
		{"devices-4_local_batch_size-1_expert_parallel_degree-8", "", "", 0, 0, 0},
		{"devices-8_local_batch_size-1_expert_parallel_degree-8", "", "dp_replicate=1 × dp_shard=1 × ep=8", 8, 1, 1},
		{"devices-4_local_batch_size-2_expert_parallel_degree-1", "", "dp_replicate=1 × dp_shard=4", 8, 2, 1},
		{"devices-8_local_batch_size-2_expert_parallel_degree-1", "", "dp_replicate=1 × dp_shard=8", 16, 2, 1},
		{"devices-4_local_batch_size-2_expert_parallel_degree-8", "", "", 0, 0, 0},
		{"devices-8_local_batch_size-2_expert_parallel_degree-8", "", "dp_replicate=1 × dp_shard=1 × ep=8", 16, 2, 1},
	}, rows(s))
	require.Contains(t, s.Points[2].Error, "expert_parallel_degree is 8 and does not divide the 4 devices")
	require.Equal(t, []string{"training.local_batch_size", "parallelism.expert_parallel_degree"}, s.Keys)

	// Without a mode and machines the recipe has its own. What is wrong with a point
	// is what the recipe's checks say.
	s = points(t, Spec{Recipe: "qwen3_moe_debug", Source: Run, Vary: []Vary{{"parallelism.tensor_parallel_degree", []string{"1", "2", "3"}}}})
	require.Equal(t, []row{
		{"devices-8_tensor_parallel_degree-1", "", "dp_replicate=1 × dp_shard=8", 8, 1, 1},
		{"devices-8_tensor_parallel_degree-2", "", "dp_replicate=1 × dp_shard=4 × tp=2", 4, 1, 1},
		{"tensor_parallel_degree-3", "", "", 0, 0, 0},
	}, rows(s))
	require.Equal(t, Impossible, s.Points[2].Status)
	require.Contains(t, s.Points[2].Error, "parallelism.tensor_parallel_degree: is 3 and must divide")

	// A degree that is varied is not adapted.
	s = points(t, Spec{Recipe: "qwen3_moe_debug", Source: Run, Mode: Weak, Devices: []int{4, 8}, Vary: []Vary{{"parallelism.data_parallel_replicate_degree", []string{"1", "4"}}}})
	require.Equal(t, []string{"dp_replicate=1 × dp_shard=4", "dp_replicate=1 × dp_shard=8", "dp_replicate=4 × dp_shard=1", "dp_replicate=4 × dp_shard=2"},
		[]string{s.Points[0].MeshString(), s.Points[1].MeshString(), s.Points[2].MeshString(), s.Points[3].MeshString()})
}

// Chips come in the shapes that pods offer.
func TestChips(t *testing.T) {
	topologies := func(spec Spec) []string {
		var out []string
		for _, p := range points(t, spec).Points {
			out = append(out, p.Topology)
		}
		return out
	}
	small := Spec{Recipe: "qwen3_moe_debug", Source: Plan, Mode: Weak}
	v5e := small
	v5e.Kind, v5e.Chips = "v5e", []int{1, 4, 8, 16, 32, 64, 128, 256, 512, 768}
	require.Equal(t, []string{"v5e:1x1", "v5e:2x2", "v5e:2x4", "v5e:4x4", "v5e:4x8", "v5e:8x8", "v5e:8x16", "v5e:16x16", "v5e:16x16*2", "v5e:16x16*3"}, topologies(v5e))
	v7x := small
	v7x.Kind, v7x.Chips = "tpu7x", []int{192, 512, 2048}
	require.Equal(t, []string{"tpu7x:4x4x12", "tpu7x:8x8x8", "tpu7x:8x8x16*2"}, topologies(v7x))
	v7x.MaxSlice = 512
	require.Equal(t, []string{"tpu7x:4x4x12", "tpu7x:8x8x8", "tpu7x:8x8x8*4"}, topologies(v7x))
	v7x.MaxSlice = 4096
	require.Equal(t, []string{"tpu7x:4x4x12", "tpu7x:8x8x8", "tpu7x:8x16x16"}, topologies(v7x))

	// Numbers that no pod has come to fewer chips, once.
	v7x.MaxSlice, v7x.Chips = 0, []int{100, 70, 130}
	s := points(t, v7x)
	require.Equal(t, "tpu7x:4x4x4", s.Points[0].Topology)
	require.Equal(t, 100, s.Points[0].Asked)
	require.Equal(t, 64, s.Points[0].Chips)
	require.Equal(t, Impossible, s.Points[1].Status)
	require.Equal(t, "70 chips cannot be had; the next fewer, 64, are those of chips-100", s.Points[1].Error)
	require.Equal(t, 128, s.Points[2].Chips)

	// What cannot hold the parameters is impossible.
	s = points(t, Spec{Recipe: "llama3_405b", Source: Plan, Mode: Weak, Topologies: []string{"v5p:8x8x8", "v5e:2x2"}})
	require.Equal(t, Impossible, s.Points[0].Status)
	require.Contains(t, s.Points[0].Error, "parameters and optimizer state alone take")
	require.Equal(t, Pending, s.Points[1].Status)
}

func TestMistakesInSpecs(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		says string
	}{
		{Spec{Recipe: "llama4"}, "llama4"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Run, Mode: Weak}, "weak mode needs several numbers"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Run, Devices: []int{1, 2}}, "say mode weak"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Run, Mode: Weak, Chips: []int{4}}, "give devices, or plan"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Plan, Mode: Weak, Devices: []int{4}}, "give chips or topologies"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Plan, Mode: Weak, Chips: []int{4}}, "the kind of the chips is open"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Plan, Mode: Weak, Chips: []int{4}, Kind: "v7x"}, `did you mean "tpu7x"?`},
		{Spec{Recipe: "qwen3_moe_debug", Source: Plan, Mode: Weak, Topologies: []string{"v5e:3x3"}}, "the nearest valid shape is v5e:2x4"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Plan, Mode: Weak, Topologies: []string{"v5e:2x2"}, Chips: []int{1}}, "exclude each other"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Plan}, "no topology to plan for"},
		{Spec{Recipe: "qwen3_moe_debug", Source: Run, Vary: []Vary{{"training.local_batch", []string{"1", "2"}}}}, "no point is possible; the first, local_batch-1: --set training.local_batch=1: training.local_batch: "},
	} {
		c.spec.Steps, c.spec.Warmup = 4, 1
		_, err := New(c.spec)
		require.ErrorContains(t, err, c.says)
	}
}

func TestParseCounts(t *testing.T) {
	for text, want := range map[string][]int{
		"8": {8}, "4, 1,2": {1, 2, 4}, "64,128,...,1024": {64, 128, 256, 512, 1024}, "64,128,…,1024,9216": {64, 128, 256, 512, 1024, 9216},
		"1,2,...,3": {1, 2, 3}, "2,4,...,10": {2, 4, 6, 8, 10}, "1,3,...,27": {1, 3, 9, 27},
	} {
		got, err := ParseCounts(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, says := range map[string]string{
		"": "no number", "0": "no number", "x": "no number", "4,4": "twice", "...,4": "two numbers before", "1,...,4": "two numbers before",
		"1,2,...": "behind the dots", "1,2,...,...,8": "two numbers before", "4,2,...,8": "must ascend", "4,8,...,30": "does not lead to 30", "99999999999": "no number",
		"1,2,...,1048575": "does not lead to",
	} {
		_, err := ParseCounts(text)
		require.ErrorContains(t, err, says, text)
	}
}

func TestParseVary(t *testing.T) {
	for text, want := range map[string]Vary{
		"a.b=1":                          {"a.b", []string{"1"}},
		" a.b = 1, 2 ,x ":                {"a.b", []string{"1", "2", "x"}},
		`a.b=[1,2],{x=1,y=[2]},"q,r",''`: {"a.b", []string{"[1,2]", "{x=1,y=[2]}", `"q,r"`, "''"}},
		"a.b=x=y,z":                      {"a.b", []string{"x=y", "z"}},
	} {
		got, err := ParseVary(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for text, says := range map[string]string{
		"a.b": "no section.key", "=1": "no section.key", "ab=1": "no section.key", "a.b=": "a value is empty", "a.b=1,,2": "a value is empty",
		"a.b=1,1": "given twice", "a.b=[1,2": "not closed", `a.b="x`: "not closed",
	} {
		_, err := ParseVary(text)
		require.ErrorContains(t, err, says, text)
	}
}

// What a sweep sets itself cannot be varied: points would be named after values that
// they do not have.
func TestVaryWhatTheSweepSets(t *testing.T) {
	for _, c := range []struct {
		spec      Spec
		key, says string
	}{
		{Spec{}, "job.dump_folder", "every point has a folder of its own"},
		{Spec{Source: Plan, Topologies: []string{"v5e:2x4"}}, "job.dump_folder", "every point has a folder of its own"},
		{Spec{}, "training.steps", "--steps"},
		{Spec{}, "metrics.save_json_file", "are read from there"},
		{Spec{Mode: Weak, Devices: []int{1, 2}}, "mesh.devices", "leave one of them out"},
		{Spec{Devices: []int{2}}, "mesh.platform", "leave one of them out"},
		{Spec{Source: Plan, Topologies: []string{"v5e:2x4"}}, "mesh.topology", "leave one of them out"},
	} {
		if c.spec.Source == "" {
			c.spec.Source = Run
		}
		c.spec.Recipe, c.spec.Steps, c.spec.Vary = "llama3_debug", 4, []Vary{{c.key, []string{"1", "2"}}}
		_, err := New(c.spec)
		require.ErrorContains(t, err, "sweep: "+c.key+" cannot be varied")
		require.ErrorContains(t, err, c.says)
	}
	s := points(t, Spec{Recipe: "llama3_debug", Source: Run, Vary: []Vary{{"mesh.devices", []string{"1", "2"}}}})
	require.Equal(t, []int{1, 2}, []int{s.Points[0].Devices, s.Points[1].Devices})
}

// A title does not give all points what only some have, and published figures are not
// taken for comparable then.
func TestTitleOfSeveral(t *testing.T) {
	published := &Series{Model: "llama3 debugmodel", SeqLen: 256, Kind: "cpu", Precision: "float32"}
	same := points(t, Spec{Recipe: "llama3_debug", Source: Run})
	require.Empty(t, same.unlike(published))
	require.Contains(t, same.Title(), "llama3 debugmodel, sequences of 256 tokens, float32, on cpu")
	s := points(t, Spec{Recipe: "llama3_debug", Source: Run, Vary: []Vary{
		{"model.override.n_layers", []string{"1", "2"}}, {"training.seq_len", []string{"128", "256"}}, {"training.mixed_precision_param", []string{"float32", "bfloat16"}}}})
	require.Contains(t, s.Title(), "several models, sequences of several lengths, several precisions, on cpu")
	require.Len(t, s.unlike(published), 3)
}
