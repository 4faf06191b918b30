package generate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// draws counts what a sampler chooses from the same logits.
func draws(t *testing.T, s Sampling, logits []float32, n int) []int {
	t.Helper()
	counts := make([]int, len(logits))
	sampler := NewSampler(s, 0)
	for range n {
		id, err := sampler.Next(logits)
		require.NoError(t, err)
		counts[id]++
	}
	return counts
}

// logitsOf are the logits of given probabilities, shifted: only differences count.
func logitsOf(probs ...float64) []float32 {
	var out []float32
	for _, p := range probs {
		out = append(out, float32(math.Log(p)+7))
	}
	return out
}

// The counts follow the distribution: Pearson's statistic, with a bound that a
// right sampler exceeds once in a thousand seeds. The seed is fixed.
func TestSamplerDistribution(t *testing.T) {
	probs := []float64{0.05, 0.4, 0.1, 0.3, 0.15}
	renormalised := func(keep ...int) []float64 {
		out, sum := make([]float64, len(probs)), 0.0
		for _, i := range keep {
			sum += probs[i]
		}
		for _, i := range keep {
			out[i] = probs[i] / sum
		}
		return out
	}
	tempered := func(temperature float64) []float64 {
		out, sum := make([]float64, len(probs)), 0.0
		for i, p := range probs {
			out[i] = math.Pow(p, 1/temperature)
			sum += out[i]
		}
		for i := range out {
			out[i] /= sum
		}
		return out
	}
	for name, c := range map[string]struct {
		s    Sampling
		want []float64
	}{
		"all":           {Sampling{Temperature: 1}, probs},
		"cold":          {Sampling{Temperature: 0.5}, tempered(0.5)},
		"hot":           {Sampling{Temperature: 3, TopP: 1}, tempered(3)},
		"top-k":         {Sampling{Temperature: 1, TopK: 3}, renormalised(1, 3, 4)},
		"top-k of all":  {Sampling{Temperature: 1, TopK: 9}, probs},
		"top-p inside":  {Sampling{Temperature: 1, TopP: 0.75}, renormalised(1, 3, 4)}, // 0.4 + 0.3 is not enough
		"top-p between": {Sampling{Temperature: 1, TopP: 0.6}, renormalised(1, 3)},
		"top-p least":   {Sampling{Temperature: 1, TopP: 1e-9}, renormalised(1)},
		// 0.45 of what the three likeliest have together is less than 0.4, 0.45 of all
		// is more.
		"top-p after top-k": {Sampling{Temperature: 1, TopK: 3, TopP: 0.45}, renormalised(1)},
		"top-p alone":       {Sampling{Temperature: 1, TopP: 0.45}, renormalised(1, 3)},
		"top-p after heat":  {Sampling{Temperature: 3, TopP: 0.45}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 20000
			counts := draws(t, c.s, logitsOf(probs...), n)
			if c.want == nil { // the heat leaves the likeliest 0.27
				require.Zero(t, counts[0]+counts[2]+counts[4])
				require.NotZero(t, counts[3])
				return
			}
			x := 0.0
			for i, p := range c.want {
				if p == 0 {
					require.Zero(t, counts[i], "token %d", i)
					continue
				}
				d := float64(counts[i]) - n*p
				x += d * d / (n * p)
			}
			require.Less(t, x, 18.5) // chi-squared, 4 degrees of freedom
		})
	}
}

// What is kept is what sorting gives.
func TestSamplerKeeps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		logits := make([]float32, 1+rng.IntN(40))
		for i := range logits {
			logits[i] = float32(rng.IntN(12)) / 3
		}
		s := NewSampler(Sampling{Temperature: 0.5 + rng.Float64(), TopK: []int{0, 2 + rng.IntN(43)}[rng.IntN(2)], TopP: rng.Float64()}, 0)
		_, err := s.Next(logits)
		require.NoError(t, err)
		order := make([]int32, len(logits))
		total := 0.0
		for i, p := range s.probs {
			order[i], s.heap[i] = int32(i), int32(i)
			total += p
		}
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
		if k := s.s.TopK; k > 0 && k < len(order) {
			order = order[:k]
		}
		kept, sum := s.likeliest(total)
		require.Equal(t, order[:len(kept)], kept)
		all, part := 0.0, 0.0
		for i, id := range order {
			if all += s.probs[id]; i < len(kept) {
				part += s.probs[id]
			}
		}
		require.InDelta(t, part, sum, 1e-9)
		require.GreaterOrEqual(t, part, s.s.TopP*all-1e-9)
		require.Less(t, part-s.probs[kept[len(kept)-1]], s.s.TopP*all+1e-9, "the last one was not needed")
	}
}

func TestSamplerGreedy(t *testing.T) {
	for _, s := range []Sampling{{}, {TopP: 0.3, TopK: 2, Seed: 5}, {Temperature: 2, TopK: 1}} {
		require.Equal(t, []int{0, 0, 10, 0}, draws(t, s, []float32{1, 2, 3, 3}, 10), "the first of equals")
	}
	require.Equal(t, []int{0, 10}, draws(t, Sampling{Temperature: 1e-300}, []float32{1, 1.001}, 10))
}

// Equal logits are kept in the order of their ids.
func TestSamplerTies(t *testing.T) {
	logits := make([]float32, 100)
	counts := draws(t, Sampling{Temperature: 1, TopK: 10}, logits, 2000)
	for i, n := range counts {
		require.Equal(t, i < 10, n > 0, "token %d", i)
	}
	counts = draws(t, Sampling{Temperature: 1, TopP: 0.205}, logits, 2000)
	require.Equal(t, 21, len(slices.DeleteFunc(counts, func(n int) bool { return n == 0 })))
}

func TestSamplerSeeds(t *testing.T) {
	logits := make([]float32, 1000)
	run := func(seed uint64, sample int) []int32 {
		s := NewSampler(Sampling{Temperature: 1, Seed: seed}, sample)
		var out []int32
		for range 20 {
			id, err := s.Next(logits)
			require.NoError(t, err)
			out = append(out, id)
		}
		return out
	}
	require.Equal(t, run(1, 2), run(1, 2))
	require.NotEqual(t, run(1, 2), run(2, 2))
	require.NotEqual(t, run(1, 2), run(1, 3))
}

func TestSamplerBrokenLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, s := range []Sampling{{}, {Temperature: 1}, {Temperature: 1, TopP: 0.5}} {
		_, err := NewSampler(s, 0).Next([]float32{0, nan, 1})
		require.ErrorContains(t, err, "the logit of token 1 is NaN")
		_, err = NewSampler(s, 0).Next([]float32{0, 1, inf})
		require.ErrorContains(t, err, "the logit of token 2 is +Inf")
		_, err = NewSampler(s, 0).Next([]float32{-inf, -inf})
		require.ErrorContains(t, err, "none of the 2 logits is finite")
		require.Equal(t, []int{0, 50, 0}, draws(t, s, []float32{-inf, -3, -inf}, 50), "impossible tokens")
	}
}

func TestSamplingValidate(t *testing.T) {
	for says, s := range map[string]Sampling{
		"temperature is -1 and must be 0 (the likeliest token) or positive": {Temperature: -1},
		"temperature is NaN":               {Temperature: math.NaN()},
		"temperature is +Inf":              {Temperature: math.Inf(1)},
		"top-p is 1.5 and must be in 0..1": {TopP: 1.5},
		"top-p is NaN":                     {TopP: math.NaN()},
		"top-k is -2 and must be positive": {TopK: -2},
	} {
		require.ErrorContains(t, s.Validate(), says)
	}
	require.NoError(t, Sampling{Temperature: 1, TopP: 1, TopK: 5}.Validate())
}
