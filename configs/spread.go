package configs

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"titan/internal/plural"
	"titan/internal/recipekey"
	"titan/mesh"
	"titan/models/decoder"
	"titan/parallel"
)

// spread is what decides whether a model can be shared out: the degrees, the
// devices they are for, and the dimensions they divide.
type spread struct {
	parallel.Config
	devices  int             // 0: as many as the degrees ask for
	topology mesh.Topology   // Slices 0: unknown
	model    *decoder.Config // nil: unknown
	recipe   *Recipe
}

// spreadOn returns what is to be checked on a number of devices, 0 for as many as
// the degrees ask for.
func (r *Recipe) spreadOn(devices int) spread {
	s := spread{Config: r.Parallelism, devices: devices, recipe: r}
	if t, err := mesh.ParseTopology(r.Mesh.Topology); r.Mesh.Topology != "" && err == nil {
		s.topology = t
	}
	if m, err := r.Decoder(); err == nil {
		s.model = &m
	}
	return s
}

// Keys of the degrees.
const (
	keyReplicate = "parallelism.data_parallel_replicate_degree"
	keyShard     = "parallelism.data_parallel_shard_degree"
	keyTensor    = "parallelism.tensor_parallel_degree"
	keyContext   = "parallelism.context_parallel_degree"
	keyExpert    = "parallelism.expert_parallel_degree"
	keyPipeline  = "parallelism.pipeline_parallel_degree"
)

// degree returns where s has a degree.
func (s *spread) degree(key string) *int {
	switch key {
	case keyReplicate:
		return &s.Replicate
	case keyShard:
		return &s.Shard
	case keyTensor:
		return &s.Tensor
	case keyContext:
		return &s.Context
	case keyExpert:
		return &s.Expert
	case keyPipeline:
		return &s.Pipeline
	}
	return nil
}

// violation is a rule that is broken.
type violation struct {
	key string
	// divides is what the degree of that key does not divide; otherwise but says
	// what is wrong, after "is N".
	divides, but string
	// absurd is a value of which nothing else need be said.
	absurd bool
}

// violations returns all rules that degrees break or, if there are none, those
// that lengths and batches break because of them.
func (s *spread) violations() []violation {
	out := append(s.onDevices(), s.onModel()...)
	if len(out) > 0 {
		return out
	}
	r := *s.recipe
	r.Parallelism = s.Config
	for _, l := range r.lengths() {
		if each, _ := r.sequenceUnit(l.key); l.n%each != 0 {
			out = append(out, violation{key: l.key})
		}
	}
	if axes, err := s.Axes(s.devices); err == nil && r.Training.LocalBatchSize > 0 {
		if _, err := r.MicroStepsOn(parallel.BatchDegree(axes)); err != nil {
			out = append(out, violation{key: keyBatch})
		}
	}
	return out
}

// rules collects what is broken.
type rules struct {
	*spread
	broken []violation
}

// divide demands that a degree divides total.
func (r *rules) divide(key string, total int, format string, args ...any) {
	if total%*r.degree(key) != 0 {
		r.broken = append(r.broken, violation{key: key, divides: fmt.Sprintf(format, args...)})
	}
}

func (r *rules) but(key, format string, args ...any) {
	r.broken = append(r.broken, violation{key: key, but: fmt.Sprintf(format, args...)})
}

func (r *rules) absurd(key, but string) {
	r.broken = append(r.broken, violation{key: key, but: but, absurd: true})
}

// onDevices returns the rules that the degrees break because of the devices.
func (s *spread) onDevices() []violation {
	r := rules{spread: s}
	if shard, ok := r.count(); ok {
		r.divide(keyExpert, shard, "data_parallel_shard_degree (%d), from whose devices it is taken", shard)
	}
	if n := s.topology.Slices; n > 1 && s.Pipeline < math.MaxInt32/s.Replicate && s.Pipeline*s.Replicate%n != 0 {
		r.but(keyReplicate, ", but only copies and stages of a pipeline may lie across the %d slices of %v: times pipeline_parallel_degree (%d) it must be a multiple of %d", n, s.topology, s.Pipeline, n)
	}
	return r.broken
}

// count checks that the degrees multiply to the number of devices, and returns
// what data_parallel_shard_degree comes to.
func (r *rules) count() (shard int, ok bool) {
	others, counted := 1, true
	for _, d := range r.Degrees() {
		// Compared by division: products may be more than an int holds.
		switch left := r.devices / others; {
		case d.N > math.MaxInt32/others:
			r.absurd(d.Key, parallel.TooMany(others))
			counted = false
		case r.devices > 0 && left%d.N != 0:
			r.divide(d.Key, left, "%s", parallel.Left(left, r.devices))
			counted = false // and others are checked without it
		default:
			others *= d.N
		}
	}
	if !counted {
		return 0, false
	}
	shard = r.Shard
	switch left := r.devices / others; {
	case r.devices > 0 && shard == -1:
		return left, true
	case r.devices > 0 && shard != left:
		r.but(keyShard, "%s", parallel.ButLeft(left, r.devices))
		return 0, false
	case shard == -1:
		shard = r.Expert
	}
	if shard > math.MaxInt32/others {
		r.absurd(keyShard, parallel.TooMany(others))
		return 0, false
	}
	most, why := maxDevices, "are taken for a mistake"
	if r.recipe.Mesh.Platform == "cpu" {
		most, why = mesh.MaxVirtualDevices, "virtual ones on one machine are refused"
	}
	if n := shard * others; n > most {
		key, degree := keyShard, shard
		if r.Shard == -1 {
			key = keyExpert
		}
		for _, d := range r.Degrees() {
			if d.N > degree {
				key, degree = d.Key, d.N
			}
		}
		r.but(key, ", and all degrees together ask for %d devices: more than %d %s", n, most, why)
		return 0, false
	}
	return shard, true
}

// onModel returns the rules that the degrees break because of the model's
// dimensions.
func (s *spread) onModel() []violation {
	m, r := s.model, rules{spread: s}
	if m == nil {
		return nil
	}
	sparse, dense := m.SparseLayers()
	r.divide(keyTensor, m.Heads, "n_heads (%d)", m.Heads)
	if len(dense) > 0 {
		r.divide(keyTensor, m.HiddenDim, "hidden_dim (%d)", m.HiddenDim)
	}
	if len(sparse) > 0 {
		r.divide(keyTensor, m.MoE.HiddenDim, "moe_hidden_dim (%d)", m.MoE.HiddenDim)
	}
	r.divide(keyTensor, m.VocabSize, "vocab_size (%d)", m.VocabSize)
	if m.KVHeads%s.Tensor != 0 && s.Tensor%m.KVHeads != 0 {
		r.but(keyTensor, ", and must divide n_kv_heads (%d) or be a multiple of it", m.KVHeads)
	}

	switch {
	case len(sparse) > 0:
		r.divide(keyExpert, m.MoE.Experts, "n_experts (%d)", m.MoE.Experts)
	case s.Expert > 1:
		r.but(keyExpert, ", but %s %s has no experts", s.recipe.Model.Name, s.recipe.Model.Flavor)
	}

	r.divide(keyPipeline, m.Layers, "n_layers (%d)", m.Layers)
	if m.Layers%s.Pipeline == 0 {
		each := m.Layers / s.Pipeline
		for l := range m.Layers {
			if m.Sparse(l) != m.Sparse(l%each) {
				r.but(keyPipeline, ", but every stage must have the same order of layers with and without experts: of stages of %s, layer %d differs from layer %d", plural.Of(each, "layer"), l, l%each)
				break
			}
		}
	}
	return r.broken
}

// errors returns an error for every degree that breaks rules, with the nearest
// value that does not.
func (s *spread) errors() []error {
	broken := s.violations()
	var out []error
	var keys []string
	for _, v := range broken {
		if slices.Contains(keys, v.key) || s.degree(v.key) == nil {
			continue
		}
		keys = append(keys, v.key)
		out = append(out, s.explain(v.key, broken))
	}
	return out
}

// explain returns the error of one degree.
func (s *spread) explain(key string, broken []violation) error {
	var divides, buts []string
	absurd := slices.ContainsFunc(broken, func(v violation) bool { return v.key == key && v.absurd })
	for _, v := range broken {
		switch {
		case v.key != key || absurd && !v.absurd:
		case v.divides != "":
			divides = append(divides, v.divides)
		default:
			buts = append(buts, v.but)
		}
	}
	text := fmt.Sprintf("is %d", *s.degree(key))
	if len(divides) > 0 {
		text += " and must divide " + listed(divides)
	}
	text += strings.Join(buts, "")
	if n, ok := s.nearest(key, broken); ok {
		text += nearestIs(n)
	}
	return recipekey.Errorf(key, "%s", text)
}

// nearest returns the value of a degree nearest to the present one, by ratio, that
// breaks no rule: if possible one with which nothing else does that did not.
func (s *spread) nearest(key string, broken []violation) (int, bool) {
	now := float64(max(1, *s.degree(key)))
	best, bestRatio, bestSpoils := 0, 0.0, false
	for _, n := range s.candidates() {
		t := *s
		*t.degree(key) = n
		works, spoils := true, false
		for _, v := range t.violations() {
			works = works && v.key != key
			spoils = spoils || !slices.ContainsFunc(broken, func(b violation) bool { return b.key == v.key })
		}
		if !works || best > 0 && spoils && !bestSpoils {
			continue
		}
		ratio := math.Abs(math.Log(float64(n) / now))
		if best == 0 || bestSpoils && !spoils || ratio < bestRatio {
			best, bestRatio, bestSpoils = n, ratio, spoils
		}
	}
	return best, best > 0
}

// candidates returns the values that a degree may have, ascending: divisors of the
// number of devices or, if that is open, up to mostDegree.
func (s *spread) candidates() []int {
	const mostDegree = 1024
	var out []int
	for n := 1; n <= mostDegree && (s.devices == 0 || n <= s.devices); n++ {
		if s.devices == 0 || s.devices%n == 0 {
			out = append(out, n)
		}
	}
	if s.devices > mostDegree {
		for n := mostDegree; n >= 1; n-- {
			if q := s.devices / n; s.devices%n == 0 && q > mostDegree {
				out = append(out, q)
			}
		}
	}
	return out
}

// listed writes "a", "a and b" or "a, b and c".
func listed(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}
