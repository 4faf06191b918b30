package configs

import (
	"fmt"
	"math"
	"strings"

	"titan/internal/recipekey"
	"titan/parallel"
)

// devices checks the degrees of parallelism against mesh and model, and lengths
// and batches against all of them.
func (c *checking) devices() {
	r := c.recipe
	if !c.clean("mesh", "parallelism") {
		return
	}
	s := r.spreadOn(r.Mesh.Count())
	if !c.clean("model") {
		s.model = nil
	}
	for _, err := range s.errors() {
		c.add(err)
	}
	c.lengths()
	if p := r.Mesh.Platform; r.Debug.Deterministic && p != "cpu" && p != "tpu" {
		c.add(recipekey.Errorf("debug.deterministic", "is not supported yet on platform %q; leave it out", p))
	}
	if !c.clean("parallelism") {
		return
	}
	axes, err := r.MeshAxes()
	if err != nil {
		c.add(err)
		return
	}
	if t := s.topology; t.Slices > 0 {
		if err := t.CheckAxes(axes, parallel.AcrossSlices()...); err != nil {
			c.add(recipekey.Errorf("mesh.topology", "%s", strings.TrimPrefix(err.Error(), "mesh: ")))
			return
		}
	}
	if c.clean("training.local_batch_size", "training.global_batch_size") {
		if _, err := r.MicroSteps(); err != nil {
			c.add(err)
		}
	}
}

// keySeqLen is the key of the length that training has.
const keySeqLen = "training.seq_len"

// length is a length of sequences in a recipe.
type length struct {
	key string
	n   int
}

// lengths returns the lengths of sequences that a run has.
func (r *Recipe) lengths() []length {
	out := []length{{keySeqLen, r.Training.SeqLen}}
	if r.Validation.Enable && r.Validation.SeqLen > 0 {
		out = append(out, length{"validation.seq_len", r.Validation.SeqLen})
	}
	return out
}

// lengths checks that sequences divide over the devices that share them out.
func (c *checking) lengths() {
	if !c.clean(keyContext, keyTensor, keyPipeline) {
		return
	}
	for _, l := range c.recipe.lengths() {
		each, why := c.recipe.sequenceUnit(l.key)
		if !c.clean(l.key) || l.n%each == 0 {
			continue
		}
		near := ""
		if n := max(1, (l.n+each/2)/each) * each; n <= math.MaxInt32 {
			near = nearestIs(n)
		}
		c.add(recipekey.Errorf(l.key, "is %d and must be a multiple of %d: %s%s", l.n, each, why, near))
	}
}

// sequenceUnit returns what the length of a sequence with this key must be a
// multiple of, and why.
func (r *Recipe) sequenceUnit(key string) (int, string) {
	cp, tp, pp := r.Parallelism.Context, r.Parallelism.Tensor, r.Parallelism.Pipeline
	n := cp * tp * pp
	var why []string
	if cp > 1 {
		why = append(why, fmt.Sprintf("context_parallel_degree %d shares it out in twice as many chunks", cp))
		if tp*pp%2 == 1 { // two equal chunks for each device
			n *= 2
		}
	}
	if tp > 1 {
		why = append(why, fmt.Sprintf("tensor_parallel_degree %d shares out %s between blocks", tp, ifFirst(why, "its tokens", "what a device has of them")))
	}
	if pp > 1 {
		why = append(why, fmt.Sprintf("the %d stages of the pipeline share out %s where the loss is computed", pp, ifFirst(why, "its tokens", "what is left")))
	}
	if more, reason := r.float8Unit(); key == keySeqLen && more > 1 { // validation has no gradients
		n = n / gcd(n, more) * more
		why = append(why, reason)
	}
	return n, strings.Join(why, ", and ")
}

// gcd is the greatest common divisor.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ifFirst is first where there is nothing yet.
func ifFirst(so []string, first, later string) string {
	if len(so) == 0 {
		return first
	}
	return later
}

// nearestIs is how a message names a value that works.
func nearestIs(n any) string { return fmt.Sprintf("; the nearest that works is %v", n) }
