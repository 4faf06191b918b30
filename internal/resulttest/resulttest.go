// Package resulttest writes folders of runs and sweeps, and plans, for tests: the
// same at every call, without a device.
package resulttest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/metrics"
	"titan/plan"
	"titan/runs"
	"titan/sweep"
)

// Start is when the runs began.
var Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// RunOptions say how a run differs from the usual one.
type RunOptions struct {
	SeqLen  int     // 0: 4096
	Flavor  string  // "": 8B
	Factor  float64 // of speed; 0: 1
	Loss    float64 // added to all losses
	Steps   int     // 0: 40
	Recipe  string  // further lines of the recipe
	Resumed bool    // a second process goes on from step 20, where the first had come to 25
}

// Run writes the folder of a run on a slice of TPUs.
func Run(t testing.TB, dir string, o RunOptions) string {
	t.Helper()
	def := func(x, d int) int {
		if x == 0 {
			return d
		}
		return x
	}
	seq, steps := def(o.SeqLen, 4096), def(o.Steps, 40)
	if o.Flavor == "" {
		o.Flavor = "8B"
	}
	if o.Factor == 0 {
		o.Factor = 1
	}
	require.NoError(t, os.MkdirAll(dir, 0o777))
	const devices, batch = 8, 16
	tokens := batch * seq
	var lines strings.Builder
	put := func(kind string, step int, at time.Time, more string) {
		fmt.Fprintf(&lines, `{"kind":%q,"step":%d,"time":%q%s}`+"\n", kind, step, at.Format(time.RFC3339Nano), more)
	}
	now := Start
	var all []float64
	train := func(attempt, first, last int) {
		put("start", first-1, now, fmt.Sprintf(`,"attempt":%d`, attempt))
		now = now.Add(20 * time.Second)
		for step := first; step <= last; step++ {
			s := (2 + 0.1*math.Sin(float64(step)) + 0.4*float64((step%10)/9)) / o.Factor
			if step == first {
				s *= 2
			}
			all = append(all, s)
			now = now.Add(time.Duration(s * 1e9))
			tps := float64(tokens) / s / devices
			put("train", step, now, fmt.Sprintf(`,"loss_metrics/global_avg_loss":%.6f,"grad_norm":%.4f,"throughput(tps)":%.3f,"tflops":%.2f,"tflops_causal":%.2f,"mfu(%%)":%.4f,"mfu_causal(%%)":%.4f,"time_metrics/end_to_end(s)":%.6f,"memory/max_reserved(GiB)":%.3f,"n_tokens_seen":%d,"lr/AdamW":%g,"time_metrics/steps(s)":[%.6f]`,
				2+6*math.Exp(-float64(step)/15)+o.Loss, 1+0.5*math.Cos(float64(step)), tps, tps*5.1e-2, tps*4.9e-2, tps/500, tps/520, s, 20+0.01*float64(step), step*tokens, 3e-4*math.Min(1, float64(step)/10), s))
			if step%10 == 0 {
				put("validation", step, now, fmt.Sprintf(`,"validation_metrics/loss":%.6f`, 2.1+6*math.Exp(-float64(step)/15)+o.Loss))
			}
		}
	}
	var attempts []*runs.Attempt
	attempt := func(first, last int, exit *runs.Exit) {
		began := now
		all = nil
		train(len(attempts)+1, first, last)
		warm := all[min(3, len(all)-1):]
		times := metrics.TimesOf(warm)
		tps := float64(tokens) / times.Mean / devices
		a := &runs.Attempt{
			Number: len(attempts) + 1, Start: began, LastSeen: now, Exit: exit, Titan: "v0.1.0", Go: "go1.26", RecipeSHA256: "abc",
			Plugin:   runs.Plugin{Name: "tpu", File: "libtpu.so", Version: "0.0.30"},
			Machine:  runs.Machine{Platform: "tpu", DeviceKind: "TPU v6 lite", Devices: devices, Hosts: 1, Host: "host", OS: "linux/amd64", CPUs: 64, Mesh: []runs.Axis{{Name: "dp_shard", Size: devices}}},
			Model:    runs.Model{Family: "llama3", Flavor: o.Flavor, Params: 8030261248, ActiveParams: 7504924672, ParamDType: "bfloat16", PeakFLOPs: 918e12, FlopsPerToken: runs.Cost{TorchTitan: 5e10, Causal: 4.8e10}},
			Batch:    runs.Batch{SeqLen: seq, GlobalBatch: batch, Passes: 1, Tokens: int64(tokens), Data: "d", Steps: int64(steps)},
			Programs: []runs.Program{{Name: "step", SHA256: "0123456789abcdef", Seconds: 12, Compile: 11, Arguments: 12 << 30, Temporaries: 6 << 30}},
			Began:    true, ResumedFrom: int64(first - 1), Checkpoints: []runs.Checkpoint{{Step: int64(last), Path: "checkpoint", Bytes: 1 << 30, Time: now, Kept: true}},
			Figures: metrics.Figures{
				Steps: len(all), FirstStep: int64(first), LastStep: int64(last), Tokens: int64(len(all) * tokens), TokensSeen: int64(last * tokens),
				FirstLoss: 8, LastLoss: 3, MemoryReserved: 20 << 30, MemoryLimit: 32 << 30,
				All: metrics.Throughput{Steps: len(all), Seconds: times.Mean * float64(len(all)), TPS: tps}, Warm: metrics.Throughput{Steps: len(warm), Seconds: times.Mean * float64(len(warm)), TPS: tps, HasMFU: true, MFU: tps / 500, MFUCausal: tps / 520},
				StepTime: times, FirstCompile: 12, Goodput: metrics.Goodput{Wall: now.Sub(began).Seconds(), Productive: now.Sub(began).Seconds() - 20, Lost: map[metrics.Kind]float64{metrics.Compile: 12, metrics.Startup: 8}},
			},
		}
		attempts = append(attempts, a)
	}
	if o.Resumed {
		attempt(1, 25, nil)
		now = now.Add(time.Minute)
		attempt(21, steps, &runs.Exit{Reason: runs.Finished, Time: now})
	} else {
		attempt(1, steps, &runs.Exit{Reason: runs.Finished, Time: now})
	}
	record := runs.Record{Schema: runs.Schema, ID: "0123456789abcdef", Created: Start, Files: runs.Files{Recipe: "recipe.toml", Metrics: "metrics.jsonl"}, Attempts: attempts}
	WriteJSON(t, filepath.Join(dir, "run.json"), record)
	write(t, filepath.Join(dir, "metrics.jsonl"), lines.String())
	write(t, filepath.Join(dir, "recipe.toml"), fmt.Sprintf(`[job]
dump_folder = %q

[model]
name = "llama3"
flavor = %q

[mesh]
platform = "tpu"
topology = "v6e:2x4"

[training]
dataset_path = "data/c4"
seq_len = %d
steps = %d
mixed_precision_param = "bfloat16"

[cost]
price_per_chip_hour = 2.7
currency = "USD"
%s`, dir, o.Flavor, seq, steps, o.Recipe))
	return dir
}

// Plan returns a plan, as titan plan --json writes it.
func Plan() *plan.Report {
	inside := &plan.Timeline{Seconds: 0.05, Compute: []plan.Stretch{{Part: "matmul", Seconds: 0.04}, {Part: "exposed communication", Start: 0.04, Seconds: 0.01}}, Links: []plan.Stretch{{Part: "all-gather", Start: 0.02, Seconds: 0.03}}}
	return &plan.Report{
		Recipe: "abc", Model: "llama3 8B", Topology: "v6e:2x4", Chips: 8, Devices: 8, Mesh: "dp_shard=8 (8 devices)", Sequences: 16, SeqLen: 4096, Passes: 1, Tokens: 65536, Effort: "default",
		RecipeTOML: "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 4096\nmixed_precision_param = \"bfloat16\"\n", Parameters: 8030261248, Active: 7504924672,
		FlopsPerToken: plan.ByConvention{Causal: 4.8e10, Full: 5e10},
		Memory:        plan.Memory{Fits: true, Limit: 31 << 30, Needed: 20 << 30, Arguments: 12 << 30, Outputs: 12 << 30, Aliased: 12 << 30, Temporaries: 8 << 30, Code: 1 << 20, Largest: []plan.Buffer{{Name: "layers.w_up", Shape: "f32[32,4096,14336]", Bytes: 1 << 30, Count: 1}}},
		Compile:       plan.Compilation{Trace: 0.5, Seconds: 60, Cache: "compiled in 60 s"},
		Prediction: &plan.Prediction{
			Basis: plan.Cycles, Seconds: 2, Low: 1.8, High: 2.2,
			Parts:     []plan.Share{{Name: "matmul", Seconds: 1.5}, {Name: "exposed communication", Seconds: 0.5}},
			Transfers: []plan.Transfer{{Kind: "all-gather", Axes: []string{"dp_shard"}, Count: 64, Bytes: 1e9, Wire: 9e8, Seconds: 0.6, Exposed: 0.5, Network: "ICI"}},
			Timeline:  &plan.Timeline{Seconds: 2, Compute: []plan.Stretch{{Part: "loop", Seconds: 1.6, Turns: 32, Inside: inside}, {Part: "optimizer", Start: 1.6, Seconds: 0.4}}},
		},
		TokensPerSecond: 4096, TokensPerSecondChip: 4096, MFU: plan.ByConvention{Causal: 21.4, Full: 22.3}, Intensity: 300, Ridge: 560, Limit: "communication that nothing hides, 25% of the step", Hint: "a larger local_batch_size",
		Choices: &plan.Choices{Weighed: 84, Room: 8, Chosen: 1, Compiled: []plan.Choice{
			{Mesh: "dp_shard=8 (8 devices)", Rows: 1, Passes: 2, Policy: "full", Guess: 2.1, Needed: 33 << 30},
			{Set: []string{"training.local_batch_size=2"}, Mesh: "dp_shard=8 (8 devices)", Rows: 2, Passes: 1, Policy: "full, offload layer_in", Guess: 1.9, Needed: 20 << 30, Fits: true, Seconds: 2, Exposed: 0.5, TokensPerSecond: 4096, MFU: 21.4},
		}},
	}
}

// Sweep writes the folder of a weak-scaling sweep of plans, with a point that
// failed.
func Sweep(t testing.TB, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o777))
	s := sweep.Sweep{Schema: sweep.Schema, Name: "weak", Mode: sweep.Weak, Source: sweep.Plan, Recipe: "llama3_8b", Model: "llama3 8B", SeqLen: 8192, Kind: "v6e", Precision: "bfloat16", Started: Start, Updated: Start}
	exposed := 0.2
	for i, chips := range []int{8, 16, 32, 64} {
		tps := 7000 - 120*float64(i)
		s.Points = append(s.Points, sweep.Point{
			ID: fmt.Sprintf("c%d", chips), Chips: chips, Devices: chips, Topology: "v6e", Mesh: []sweep.Axis{{Name: "dp_replicate", Size: 1 << i}, {Name: "dp_shard", Size: 8}},
			GlobalBatch: 3 * chips, LocalBatch: 3, Passes: 1, Tokens: int64(3 * chips * 8192), Source: sweep.Plan, Status: sweep.OK,
			StepSeconds: 24576 / tps, TPS: tps * float64(chips), TPSDevice: tps, TPSChip: tps, MFU: &plan.ByConvention{Causal: tps / 180, Full: tps / 160},
			Efficiency: tps / 7000, Baseline: "c8", Memory: 25 << 30, Limit: 31 << 30, Exposed: &exposed, Breakdown: map[string]float64{"matmul": 2.5, "exposed communication": 0.2},
		})
	}
	s.Points = append(s.Points, sweep.Point{ID: "c128", Chips: 128, Devices: 128, GlobalBatch: 384, Source: sweep.Plan, Status: sweep.Failed, Failure: sweep.OutOfMemory, Error: "the step does not fit"})
	WriteJSON(t, filepath.Join(dir, sweep.FileName), s)
	return dir
}

// WriteJSON writes a value as a file.
func WriteJSON(t testing.TB, path string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	write(t, path, string(text))
}

func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}
