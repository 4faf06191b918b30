package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/mesh"
	"titan/plan"
)

// These are set in the environment of processes that are this program in another
// part: that of titan, with what becomes of points as "DEVICES=FATE,…", or that of
// a sweep in a folder.
const (
	fateVar   = "TITAN_SWEEP_TEST_FATE"
	folderVar = "TITAN_SWEEP_TEST_FOLDER"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 3 && (os.Args[1] == "train" || os.Args[1] == "plan"):
		os.Exit(fakeTitan(os.Args[1:]))
	case os.Getenv(folderVar) != "":
		os.Exit(fakeSweep(os.Getenv(folderVar)))
	}
	os.Exit(m.Run())
}

// fakeTitan does as titan train and titan plan would, in no time. Every attempt
// leaves a line in attempts.txt beside the points.
func fakeTitan(args []string) int {
	recipe := args[2]
	r, _, err := configs.Load(recipe, nil)
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "titan:", err)
		return 1
	}
	if err != nil {
		return fail(err)
	}
	n := r.Mesh.Count()
	dir := filepath.Dir(recipe)
	attempts, err := os.OpenFile(filepath.Join(dir, "..", "..", "attempts.txt"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return fail(err)
	}
	fmt.Fprintln(attempts, filepath.Base(dir), os.Getpid())
	attempts.Close()
	for f := range strings.SplitSeq(os.Getenv(fateVar), ",") {
		at, fate, _ := strings.Cut(f, "=")
		if at != fmt.Sprint(n) {
			continue
		}
		switch fate {
		case "fails":
			fmt.Println("all is well")
			fmt.Fprintln(os.Stderr, "titan: the recipe has 2 mistakes:\n  one\n  two")
			return 1
		case "memory":
			fmt.Fprintln(os.Stderr, "titan: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5 bytes")
			return 1
		case "silent":
			return 9
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "hangs": // and does not listen
			signal.Ignore(syscall.SIGTERM)
			time.Sleep(time.Minute)
		case "waits":
			time.Sleep(time.Minute)
		case "empty":
			return 0
		}
	}
	if args[0] == "train" {
		err = fakeRun(r, n)
	} else {
		code, e := fakePlan(r, args[len(args)-1], args)
		if err = e; code != 0 {
			return code
		}
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

// fakeRun writes the metrics of a run whose steps take 1 s on a device and 0.1 s
// for each further one; the first are slower.
func fakeRun(r *configs.Recipe, n int) error {
	if err := os.MkdirAll(r.Job.DumpFolder, 0o777); err != nil {
		return err
	}
	tokens, err := r.TokensPerStep()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`{"kind":"start","step":0,"time":"2026-11-30T12:00:00Z"}` + "\n")
	for step := 1; step <= r.Training.Steps; step++ {
		seconds := 1 + 0.1*float64(n-1)
		if step == 1 {
			seconds = 30
		}
		tps := float64(tokens) / seconds / float64(n)
		fmt.Fprintf(&b, `{"kind":"train","step":%d,"time":"2026-11-30T12:00:01Z","loss_metrics/global_avg_loss":%g,"throughput(tps)":%g,"mfu(%%)":%g,"mfu_causal(%%)":%g,"time_metrics/end_to_end(s)":%g,"time_metrics/data_loading(s)":0.01,"memory/max_active(GiB)":2}`+"\n",
			step, 10-float64(step), tps, tps/100, tps/200, seconds)
	}
	b.WriteString(`{"kind":"summary","step":3,"time":"2026-11-30T12:00:09Z"}` + "\n" + `{"kind":"train","st`)
	return os.WriteFile(filepath.Join(r.Job.DumpFolder, r.Metrics.SaveJSONFile), []byte(b.String()), 0o666)
}

// fakePlan writes a plan: 10 s of computation, and 0.1 s of communication for each
// doubling of the chips beyond 64. Fewer chips are too few.
func fakePlan(r *configs.Recipe, file string, args []string) (int, error) {
	for i, a := range args {
		if a == "--json" {
			file = args[i+1]
		}
	}
	t, err := mesh.ParseTopology(r.Mesh.Topology)
	if err != nil {
		return 0, err
	}
	tokens, err := r.TokensPerStep()
	if err != nil {
		return 0, err
	}
	p := plan.Report{Chips: t.Chips(), Devices: t.Devices(), Tokens: tokens}
	p.Memory = plan.Memory{Fits: true, Limit: 90 << 30, Needed: 80 << 30}
	if t.Chips() < 64 {
		p.Memory = plan.Memory{Limit: 90 << 30, Needed: 100 << 30, Why: "arguments and temporaries"}
	} else {
		exposed := 0.0
		for n := 64; n < t.Chips(); n *= 2 {
			exposed += 0.1
		}
		s := 10 + exposed
		p.Prediction = &plan.Prediction{Seconds: s, Low: 0.9 * s, High: 1.2 * s, Parts: []plan.Share{{Name: "matmul", Seconds: 10}, {Name: plan.Communication.String(), Seconds: exposed}}}
		p.TokensPerSecond = float64(tokens) / s / float64(p.Devices)
		p.TokensPerSecondChip = float64(tokens) / s / float64(p.Chips)
		p.MFU = plan.ByConvention{Causal: p.TokensPerSecond / 100, Full: p.TokensPerSecond / 90}
		p.Limit = "matmul"
	}
	text, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, text, 0o666); err != nil {
		return 0, err
	}
	if !p.Memory.Fits {
		fmt.Fprintln(os.Stderr, "titan: the step does not fit")
		return 3, nil
	}
	return 0, nil
}

// onDevices is a sweep of runs.
func onDevices(devices ...int) Spec {
	return Spec{Name: "test", Recipe: "qwen3_moe_debug", Source: Run, Mode: Weak, Devices: devices, Steps: 4, Warmup: 1}
}

// onChips is a sweep of plans.
func onChips(chips ...int) Spec {
	return Spec{Name: "test", Recipe: "qwen3_235b_a22b", Source: Plan, Mode: Weak, Chips: chips,
		Set: []string{"parallelism.data_parallel_replicate_degree=1", "parallelism.data_parallel_shard_degree=2048"}}
}

// fakeOptions have this program in the place of titan.
func fakeOptions(fate string) Options {
	return Options{Command: []string{os.Args[0]}, Env: []string{fateVar + "=" + fate}, Versions: Versions{Titan: "test", Plugin: "none"}}
}

// fakeSweep sweeps over runs, of which that on 2 devices does not end.
func fakeSweep(dir string) int {
	s, err := New(onDevices(1, 2, 4))
	if err == nil {
		err = Execute(context.Background(), dir, s, fakeOptions("2=waits"))
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// attempts are the points that were tried, in order, and the process of the last.
func attempts(t *testing.T, dir string) (ids []string, last int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "attempts.txt"))
	if os.IsNotExist(err) {
		return nil, 0
	}
	require.NoError(t, err)
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		var id string
		_, err := fmt.Sscan(line, &id, &last)
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return ids, last
}
