package plan

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/train"
)

var record = flag.Bool("record", false, "compile the recorded programs again (with the plugin for TPU) and write what is expected of them")

var rewrite = flag.Bool("rewrite", false, "write what is expected of the recorded programs again")

// recorded are steps whose compiled programs lie in testdata.
var recorded = []struct {
	name, recipe string
	set          []string
	quick        bool
}{
	{"llama_v5e", "llama3_debug", []string{"mesh.topology=v5e:2x4", "training.seq_len=256", "model.override.n_layers=2", "kernels.attention=plain"}, false},
	{"llama_quick", "llama3_debug", []string{"mesh.topology=v5e:2x4", "training.seq_len=256", "model.override.n_layers=2", "kernels.attention=plain"}, true},
	{"moe_tpu7x", "qwen3_moe_debug", []string{"mesh.topology=tpu7x:2x2x1", "training.seq_len=256", "model.override.n_layers=2", "kernels.attention=plain", "kernels.experts=plain", "parallelism.expert_parallel_degree=2"}, false},
}

// recordedStep builds the step of a recorded program.
func recordedStep(t *testing.T, recipe string, set []string) *traced {
	t.Helper()
	all := append([]string{"mesh.platform=tpu", "mesh.devices=0", "training.mixed_precision_param=bfloat16", "validation.enable=false"}, set...)
	r, _, err := configs.Load("builtin:"+recipe, all)
	require.NoError(t, err)
	s, err := build(r)
	require.NoError(t, err)
	return s
}

// program reads a recorded program; with -record it is compiled first.
func program(t *testing.T, name string, s *traced, quick bool) *hlo.Module {
	t.Helper()
	path := filepath.Join("testdata", name+".pb.gz")
	if *record {
		level := 0
		if quick {
			level = pjrt.LevelO0
		}
		o := train.CompileOptionsAt(s.mesh, train.PlatformOf(s.recipe), level)
		_, code, err := xlatest.CompileTPU(t, s.topology.SliceName(), s.step.Module.StableHLOWithLocations(), o).OptimizedProgram()
		require.NoError(t, err)
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(code)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	code, err := io.ReadAll(z)
	require.NoError(t, err)
	m, err := hlo.Parse(code)
	require.NoError(t, err)
	return m
}

// What is predicted of recorded programs, to the last digit shown: a change of the
// model of time shows here.
func TestPredictionsOfRecordedPrograms(t *testing.T) {
	for _, c := range recorded {
		t.Run(c.name, func(t *testing.T) {
			s := recordedStep(t, c.recipe, c.set)
			m := program(t, c.name, s, c.quick)
			r := s.report(Options{Quick: c.quick})
			r.Memory.Largest = largestValues(m)
			require.NoError(t, r.predict(s, m, c.quick, nil))
			sum := 0.0
			for _, p := range r.Prediction.Parts {
				sum += p.Seconds
			}
			require.InEpsilon(t, r.Prediction.Seconds, sum, 1e-9, "the parts are the whole")
			require.Less(t, r.Prediction.Low, r.Prediction.Seconds)
			require.Greater(t, r.Prediction.High, r.Prediction.Seconds)
			require.Greater(t, r.Prediction.Flops, r.FlopsPerToken.Causal*float64(r.Tokens)/float64(r.Devices), "what is computed is the model's arithmetic and more")
			got := r.Memory.largestTable() + r.speed()
			if s.options.Model.MoE == nil { // whose loops have no known length
				counted := s.step.Module.Cost().Device[graph.CostContraction].Flops
				require.InEpsilon(t, counted, r.Prediction.Flops, 0.02, "the compiled program's contractions are ours")
			}
			path := filepath.Join("testdata", c.name+".txt")
			if *record || *rewrite {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}
