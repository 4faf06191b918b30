package data

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPermutationIsBijective(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 5, 7, 64, 255, 256, 257, 1000, 4096, 65537} {
		for k := range uint64(5) {
			p := NewPermutation(n, key(k, 1))
			seen := make([]bool, n)
			for i := range n {
				j := p.At(i)
				require.True(t, j >= 0 && j < n && !seen[j], "n %d, key %d: %d goes to %d", n, k, i, j)
				seen[j] = true
			}
		}
	}
	// Large domains cannot be gone through; images of neighbours stay apart.
	p := NewPermutation(math.MaxInt64, 1)
	seen := map[int64]bool{}
	for i := range int64(10000) {
		j := p.At(math.MaxInt64 - 1 - i)
		require.True(t, j >= 0 && !seen[j])
		seen[j] = true
	}
}

// Every place is as likely as another for every element, and the order of two
// elements is a coin toss, over keys: chi-squared with a bound that a fair
// permutation exceeds once in far more than a million seeds.
func TestPermutationIsFair(t *testing.T) {
	for _, n := range []int64{2, 3, 10, 100} {
		const keys = 5000
		counts := make([][]int, n)
		for i := range counts {
			counts[i] = make([]int, n)
		}
		for k := range uint64(keys) {
			p := NewPermutation(n, key(99, k))
			for i := range n {
				counts[i][p.At(i)]++
			}
		}
		chi, want := 0.0, float64(keys)/float64(n)
		for i := range counts {
			for _, c := range counts[i] {
				chi += (float64(c) - want) * (float64(c) - want) / want
			}
		}
		free := float64((n - 1) * (n - 1))
		require.Less(t, chi, free+6*math.Sqrt(2*free)+20, "n %d", n)
	}
}

// No sample stays near its place, and neighbours part.
func TestPermutationMixes(t *testing.T) {
	const n = 100000
	p := NewPermutation(n, key(5))
	fixed, neighbours, distance := 0, 0, 0.0
	for i := range int64(n) {
		a, b := p.At(i), p.At((i+1)%n)
		if a == i {
			fixed++
		}
		if b == a+1 {
			neighbours++
		}
		distance += math.Abs(float64(a-i)) / n
	}
	require.Less(t, fixed, 10)
	require.Less(t, neighbours, 10)
	require.InDelta(t, 1.0/3, distance/n, 0.01)
}

func TestMixture(t *testing.T) {
	for _, weights := range [][]float64{{1}, {1, 1}, {1, 2, 3}, {0.7, 0.3}, {1000, 1, 1e-1}, {1.0 / 3, 1.0 / 3, 1.0 / 3}} {
		m, err := newMixture(weights, 7)
		require.NoError(t, err)
		total := 0.0
		for _, w := range weights {
			total += w
		}
		next := make([]int64, len(weights))
		seen := make([]map[int64]bool, len(weights))
		for i := range seen {
			seen[i] = map[int64]bool{}
		}
		const blocks = 5
		for n := range blocks * m.block {
			d, number := m.at(n)
			if seen[d][number] {
				t.Fatalf("sample %d of source %d comes twice", number, d)
			}
			seen[d][number] = true
			next[d]++
			if (n+1)%m.block == 0 {
				for d, w := range weights {
					// Exact to a sample, and no number left out.
					require.InDelta(t, float64(n+1)*w/total, float64(next[d]), 1.0001)
					for k := range next[d] {
						if !seen[d][k] {
							t.Fatalf("sample %d of source %d is left out", k, d)
						}
					}
				}
			}
		}
		// Still exact after 10^15 samples.
		k := int64(1e15) / m.block
		for d, w := range weights {
			require.InDelta(t, float64(k*m.block)*w/total, float64(m.dealt(d+1, k)-m.dealt(d, k)), 2)
		}
	}
	for _, bad := range [][]float64{{0, 1}, {-1, 1}, {math.NaN()}, {math.Inf(1), 1}, {1, 1e-12}} {
		_, err := newMixture(bad, 1)
		require.Error(t, err)
	}
}

func BenchmarkPermutation(b *testing.B) {
	p := NewPermutation(1e9, 3)
	i := int64(0)
	for b.Loop() {
		i = p.At(i)
	}
}
