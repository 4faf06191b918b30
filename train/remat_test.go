package train

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/human"
	"titan/models/decoder"
	"titan/pjrt"
)

// budgeted is memoryOptions in mode memory_budget.
func budgeted(t testing.TB, offload ...string) StepOptions {
	return memoryOptions(t, "dp_shard=8", decoder.ActivationCheckpoint{Mode: decoder.RematBudget, Offload: offload})
}

// pretended compiles nothing: it says that temporaries are a multiple of the
// estimate, and notes what it was asked for.
type pretended struct {
	multiple float64
	oom      int64 // estimates from which the compiler gives up; 0: none
	asked    []int64
	open     int
}

func (p *pretended) compile(s *Step) (Trial[int], error) {
	f := s.Module.Footprint()
	p.asked = append(p.asked, f.InUse())
	if p.oom > 0 && f.InUse() >= p.oom {
		return Trial[int]{}, fmt.Errorf("compiling: %w", &pjrt.OutOfMemory{Err: &pjrt.Error{Message: "too large"}})
	}
	p.open++
	return Trial[int]{Program: len(p.asked), InUse: f.Arguments + int64(p.multiple*float64(f.InUse()-f.Arguments)), Close: func() { p.open-- }}, nil
}

// A budget is met by the policy with the least arithmetic that the compiler finds
// small enough, and others are not left open.
func TestFitStep(t *testing.T) {
	fit := func(budget int64, multiple float64, oom int64) (*Fit[int], *pretended) {
		p := &pretended{multiple: multiple, oom: oom}
		f, err := FitStep(budgeted(t), budget, false, p.compile)
		require.NoError(t, err)
		require.Equal(t, 1, p.open, "programs that are not used are closed")
		require.Equal(t, f.Program, slices.Index(p.asked, f.Step.Module.Footprint().InUse())+1)
		require.LessOrEqual(t, f.Chosen.Compiled, budget)
		for _, x := range f.Trials {
			if x.Flops < f.Chosen.Flops && x.Compiled != math.MaxInt64 {
				require.Greater(t, x.State+int64(multiple*float64(x.Estimate-x.State)), budget, "%v is cheaper than %v and fits", x.Policy, f.Chosen.Policy)
			}
		}
		require.Contains(t, strings.Join(f.Lines(), "\n"), fmt.Sprintf("%v: ", f.Chosen.Policy))
		return f, p
	}
	f, p := fit(1<<40, 1, 0)
	require.Equal(t, decoder.RematNone, f.Chosen.Policy.Mode)
	require.Len(t, p.asked, 1)
	trials := f.Trials
	for i := 1; i < len(trials); i++ {
		require.Greater(t, trials[i].Flops, trials[i-1].Flops)
		require.Less(t, trials[i].Estimate, trials[i-1].Estimate)
	}
	require.Equal(t, decoder.RematFull, trials[len(trials)-1].Policy.Mode)
	require.GreaterOrEqual(t, len(trials), 6, "there is something to choose from")

	for i, x := range trials {
		if !long && i%3 == 2 {
			continue // each is built a dozen times
		}
		f, p := fit(x.Estimate, 1, 0)
		require.Equal(t, x.Policy, f.Chosen.Policy)
		require.Len(t, p.asked, 1, "estimates that are right are believed")
		if i > 0 {
			// The compiler needs a half more than was estimated, or less.
			fit(x.Estimate*3/2, 1.5, 0)
			fit(x.Estimate, 0.7, 0)
			// It gives up on the two that it is asked for first.
			f, p = fit(trials[0].Estimate, 1, trials[i-1].Estimate)
			require.Equal(t, x.Policy, f.Chosen.Policy)
			require.Len(t, p.asked, i+1)
		}
	}
}

// Where nothing fits, the error says by how much and what would; what it says is
// true.
func TestNothingFits(t *testing.T) {
	o := budgeted(t)
	p := &pretended{multiple: 1}
	_, err := FitStep(o, 10<<20, false, p.compile)
	var e *BudgetError
	require.ErrorAs(t, err, &e)
	require.Zero(t, p.open)
	require.Equal(t, decoder.RematFull, e.Best.Policy.Mode)
	t.Log(err)
	require.ErrorContains(t, err, human.Memory(e.Best.Compiled-10<<20)+" too much")
	require.Len(t, e.Advice, 1)
	var local int
	_, scanErr := fmt.Sscanf(e.Advice[0], "training.local_batch_size = %d instead", &local)
	require.NoError(t, scanErr)
	o.Rows, o.Passes = local*8, 8/local
	_, err = FitStep(o, 10<<20, false, p.compile)
	require.NoError(t, err)

	_, err = FitStep(budgeted(t), 14<<20, true, p.compile)
	require.ErrorContains(t, err, `activation_checkpoint.offload = ["layer_in"]`)
	f, err := FitStep(budgeted(t, decoder.NameLayerIn), 14<<20, true, p.compile)
	require.NoError(t, err)
	require.Equal(t, []string{decoder.NameLayerIn}, f.Options.Options.Remat.Offload)

	_, err = FitStep(o, 1<<20, false, p.compile)
	require.ErrorContains(t, err, "parameters and optimizer state alone take")
	require.ErrorContains(t, err, "over at least 4 times as many devices")

	p.oom = 1
	_, err = FitStep(o, 1<<30, false, p.compile)
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, math.MaxInt64, e.Best.Compiled)
}

// The compiler's own account of memory is within the budget that was given, and
// all that compute less again would be outside.
func TestMemoryBudgetHolds(t *testing.T) {
	quickly(t)
	m := newMeasured(t)
	o := budgeted(t)
	for _, budget := range []int64{64 << 20, 30 << 20} {
		f, err := FitStep(o, budget, false, func(s *Step) (Trial[int], error) {
			return Trial[int]{InUse: m.of(s).InUse(), Close: func() {}}, nil
		})
		require.NoError(t, err)
		for _, line := range f.Lines() {
			t.Log(line)
		}
		require.LessOrEqual(t, m.of(f.Step).InUse(), budget)
		i := slices.IndexFunc(f.Trials, func(x RematTrial) bool { return x.Flops == f.Chosen.Flops })
		require.Positive(t, i)
		before := o
		before.Options.Remat = f.Trials[i-1].Policy
		s, err := BuildStep(before)
		require.NoError(t, err)
		require.Greater(t, m.of(s).InUse(), budget, "%v would have fitted", f.Trials[i-1].Policy)
	}
}

// rematCases are policies that keep values of every kind.
func rematCases() (cases []parityCase) {
	keep := func(names ...string) func(*StepOptions) {
		return func(o *StepOptions) {
			o.Options.Remat = decoder.ActivationCheckpoint{Mode: decoder.RematSelective, SelectiveOption: "op", Save: names}
		}
	}
	with := func(change func(*StepOptions)) func(*StepOptions) {
		return func(o *StepOptions) {
			o.Model.MoE.CapacityFactor = 16
			change(o)
		}
	}
	all := keep(decoder.SavedNames()...)
	cases = []parityCase{
		{mesh: "dp_shard=2 cp=2 tp=2", packed: true, change: all},
		{mesh: "dp_shard=2 ep=2", moe: true, change: all},
		{mesh: "dp_shard=2 ep=2", moe: true, change: with(all)},
		{mesh: "dp_shard=2", moe: true, change: with(keep(decoder.NameUp, decoder.NameExpertOut))},
	}
	if long {
		cases = append(cases, parityCase{mesh: "dp_shard=2 cp=2 tp=2", packed: true, change: keep(decoder.NameAttnOut, decoder.NameGate)},
			parityCase{mesh: "dp_shard=2", moe: true, change: all})
	}
	return cases
}

// What is kept changes nothing of what is computed.
func TestSavedValuesGiveTheSameGradients(t *testing.T) {
	quickly(t)
	reference := map[string]parityResult{}
	for i, c := range rematCases() {
		params := parityParams(parityModel(c.moe))
		key := fmt.Sprint(c.moe, c.packed)
		if reference[key].grads == nil {
			alone := c
			alone.mesh, alone.change = "dp_shard=1", nil
			reference[key] = alone.run(t, params)
		}
		worst, name := reference[key].compare(c.run(t, params))
		t.Logf("case %d, %v: %.2g (%s)", i, c, worst, name)
		require.Less(t, worst, 2e-5, "case %d, %v: %s", i, c, name)
	}
}

// Every value that is kept spares the backward pass arithmetic, or communication.
func TestSavedValuesSpareWork(t *testing.T) {
	type work struct {
		dots  float64
		sends map[string]float64
	}
	count := func(c parityCase, names ...string) work {
		c.change = func(o *StepOptions) {
			o.Options.Remat = decoder.ActivationCheckpoint{Mode: decoder.RematSelective, SelectiveOption: "op", Save: names}
			if strings.HasPrefix(string(c.mesh), "dp_replicate") {
				o.Model.MoE.CapacityFactor = 1.25
			}
		}
		s, err := BuildStep(c.options(t))
		require.NoError(t, err)
		cost := s.Module.Cost()
		w := work{cost.Device[0].Flops, map[string]float64{}}
		for _, x := range cost.Collectives {
			w.sends[x.Kind] += x.Bytes
		}
		return w
	}
	dense := parityCase{mesh: "dp_shard=4 tp=2"}
	bounded := parityCase{mesh: "dp_replicate=2 dp_shard=2 ep=2", moe: true} // experts with a capacity
	shared := parityCase{mesh: "dp_shard=2 ep=2", moe: true}
	for _, c := range []struct {
		at          parityCase
		names       []string
		dots, sends bool
	}{
		{dense, []string{decoder.NameQ}, true, false},
		{dense, []string{decoder.NameK}, true, false},
		{dense, []string{decoder.NameV}, true, false},
		{dense, []string{decoder.NameAttnOut}, true, false},
		{dense, []string{decoder.NameResid}, true, true}, // a reduce-scatter
		{dense, []string{decoder.NameGate}, true, false},
		{dense, []string{decoder.NameUp}, true, false},
		{dense, []string{decoder.NameWeights}, false, true},
		{dense, []string{decoder.NameLayerIn, decoder.NameMLPOut}, false, false}, // are not needed, or kept anyway
		{bounded, []string{decoder.NameRouter}, true, false},
		{bounded, []string{decoder.NameExpertIn}, false, true},
		{bounded, []string{decoder.NameExpertOut}, true, true},
		{bounded, []string{decoder.NameGate}, true, false},
		{shared, []string{decoder.NameRouter}, true, true},
	} {
		full, kept := count(c.at), count(c.at, c.names...)
		require.Equal(t, c.dots, kept.dots < full.dots, "%v: contractions, keeping %v", c.at, c.names)
		less := false
		for kind, n := range full.sends {
			require.LessOrEqual(t, kept.sends[kind], n, "%v: %s, keeping %v", c.at, kind, c.names)
			less = less || kept.sends[kind] < n
		}
		require.Equal(t, c.sends, less, "%v: communication, keeping %v", c.at, c.names)
	}
}

// A run whose budget is too small says which would do, and with that it runs.
func TestBudgetThatWouldDo(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	set := []string{"mesh.devices=1", "training.steps=1", "checkpoint.enable=false", "activation_checkpoint.mode=memory_budget"}
	err, _ := fails(t, recipe(t, data, append(set, "activation_checkpoint.memory_budget=0.2MiB")...))
	_, rest, ok := strings.Cut(err.Error(), `activation_checkpoint.memory_budget = "`)
	require.True(t, ok, "%v", err)
	enough, _, _ := strings.Cut(rest, `"`)
	_, log := run(t, recipe(t, data, append(set, "activation_checkpoint.memory_budget="+enough)...))
	require.Contains(t, log, "<- chosen")
}
