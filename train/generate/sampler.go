package generate

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Sampling says how the next token is chosen from the logits. The zero value
// always takes the likeliest.
type Sampling struct {
	// Temperature divides the logits; 0 takes the likeliest token, of equals the
	// one with the lowest id.
	Temperature float64
	// TopK keeps that many of the likeliest tokens; 0 keeps all.
	TopK int
	// TopP keeps the fewest of the likeliest tokens whose probabilities reach it
	// together (nucleus sampling, Holtzman et al., 2020), after TopK; 0 and 1 keep
	// all.
	TopP float64
	Seed uint64
}

// Validate reports the first value that makes no sense.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature is %v and must be 0 (the likeliest token) or positive", s.Temperature)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p is %v and must be in 0..1", s.TopP)
	case s.TopK < 0:
		return fmt.Errorf("top-k is %d and must be positive, or 0 for all tokens", s.TopK)
	}
	return nil
}

// Sampler chooses tokens. The choices follow from Sampling, the sample's number
// and the logits alone.
type Sampler struct {
	s     Sampling
	rng   *rand.Rand
	probs []float64 // scratch: of tokens, not divided by their sum
	heap  []int32   // scratch
}

// NewSampler returns the sampler of one of several samples.
func NewSampler(s Sampling, sample int) *Sampler {
	return &Sampler{s: s, rng: rand.New(rand.NewPCG(s.Seed, uint64(sample)))}
}

// Next chooses a token. It fails if a logit is NaN or +Inf, or none is finite.
func (s *Sampler) Next(logits []float32) (int32, error) {
	best := int32(-1)
	for i, x := range logits {
		if x != x || x > math.MaxFloat32 {
			return 0, fmt.Errorf("the logit of token %d is %v: the model's parameters, or what it computes from them, are not finite", i, x)
		}
		if x >= -math.MaxFloat32 && (best < 0 || x > logits[best]) {
			best = int32(i)
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("none of the %d logits is finite", len(logits))
	}
	if s.s.Temperature == 0 || s.s.TopK == 1 {
		return best, nil
	}
	s.probs = s.probs[:0]
	total := 0.0
	for _, x := range logits {
		p := math.Exp((float64(x) - float64(logits[best])) / s.s.Temperature)
		s.probs = append(s.probs, p)
		total += p
	}
	tokens := s.heap[:0]
	for i := range logits {
		tokens = append(tokens, int32(i))
	}
	s.heap = tokens
	if s.s.TopK > 0 && s.s.TopK < len(logits) || s.s.TopP > 0 && s.s.TopP < 1 {
		tokens, total = s.likeliest(total)
	}
	return s.draw(tokens, total), nil
}

// draw takes one of the tokens, whose probabilities add up to sum.
func (s *Sampler) draw(tokens []int32, sum float64) int32 {
	left := s.rng.Float64() * sum
	last := tokens[0]
	for _, t := range tokens {
		p := s.probs[t]
		if p == 0 {
			continue
		}
		if last = t; left < p {
			break
		}
		left -= p
	}
	return last // the last one also where rounding leaves a rest
}

// likeliest returns the tokens that TopK and TopP keep, the likeliest first, and
// the sum of their probabilities. They come from a heap, as they are few.
func (s *Sampler) likeliest(total float64) (kept []int32, sum float64) {
	h := s.heap
	for i := len(h)/2 - 1; i >= 0; i-- {
		s.sift(h, i)
	}
	pop := func() {
		end := len(h) - 1
		kept = append(kept, h[0])
		h[0], h = h[end], h[:end]
		s.sift(h, 0)
	}
	most := len(h)
	if s.s.TopK > 0 && s.s.TopK < most { // TopP is a share of what this keeps
		most, total = s.s.TopK, 0
		for len(kept) < most {
			pop()
			total += s.probs[kept[len(kept)-1]]
		}
	}
	want := math.Inf(1)
	if s.s.TopP > 0 && s.s.TopP < 1 {
		want = s.s.TopP * total
	}
	n := 0
	for ; n < most && (n == 0 || sum < want); n++ {
		if n == len(kept) {
			pop()
		}
		sum += s.probs[kept[n]]
	}
	return kept[:n], sum
}

// sift restores the order of a heap, the likeliest first and of equals the lowest
// id, below i.
func (s *Sampler) sift(h []int32, i int) {
	before := func(a, b int32) bool {
		return s.probs[a] > s.probs[b] || s.probs[a] == s.probs[b] && a < b
	}
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(h[c+1], h[c]) {
			c++
		}
		if !before(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
