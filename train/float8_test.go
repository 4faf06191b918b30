package train

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/decoder"
	"titan/pjrt/hlo"
)

// A step with products in 8-bit floats has one loss on every mesh. Gradients are
// equal but for single roundings: where the last bit of an operand differs, so may
// the side to which its 8-bit value falls. (That products are equal where operands
// are is tested in models/decoder, for all recipes.)
func TestFloat8Parity(t *testing.T) {
	quickly(t)
	model := parityModel(false)
	model.Layers = 1
	params := parityParams(model)
	run := func(mesh degrees, gather bool) parityResult {
		return parityCase{mesh: mesh, change: func(o *StepOptions) {
			o.Model = model
			o.Options.Float8 = decoder.Float8{Enable: true, Recipe: decoder.RecipeTensorwise, AllGather: gather}
			o.Options.Float8InBF16 = true
		}}.run(t, params)
	}
	want, got := run("dp_shard=1", false), run("dp_shard=2 tp=2", true)
	require.InEpsilon(t, want.scalars[MetricLoss], got.scalars[MetricLoss], 2e-6)
	worst, name := want.compare(got)
	t.Logf("largest difference of a gradient: %.2g of its largest element (%s)", worst, name)
	require.Less(t, worst, 0.02, name)
}

// Training in 8-bit floats follows training in bf16.
func TestFloat8Training(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(3, 200, 20, 60)...)
	train := func(set ...string) []float64 {
		r := recipe(t, data, append([]string{"training.steps=20", "training.mixed_precision_param=bfloat16", "checkpoint.enable=false", "training.local_batch_size=2"}, set...)...)
		_, log := run(t, r)
		require.Contains(t, log, "mfu: N/A")
		return curve(t, r, loss, 20)
	}
	want := train()
	require.Less(t, want[19], 0.9*want[0], "something is learnt")
	recipes := []string{decoder.RecipeTensorwise}
	if long {
		recipes = append(recipes, decoder.RecipeRowwise)
	}
	for _, recipe := range recipes {
		got := train("quantize.linear.float8.enable=true", "quantize.linear.float8.recipe_name="+recipe)
		t.Logf("%s: %.4f to %.4f, in bf16 %.4f to %.4f", recipe, got[0], got[19], want[0], want[19])
		require.NotEqual(t, want[0], got[0])
		for i := range want {
			require.InEpsilon(t, want[i], got[i], 0.03, "step %d", i+1)
		}
	}
}

// Compiled for a TPU, products of dense projections have operands in 8 bits, and so
// is what is gathered of their parameters.
func TestFloat8CompilesForTPU(t *testing.T) {
	_, _, mod := compiledFor(t, "tpu7x:2x2x1", "llama3", 1, 8, func(o *StepOptions) {
		o.Options.Float8 = decoder.Float8{Enable: true, Recipe: decoder.RecipeTensorwise, AllGather: true}
		o.Model.Layers = 2
	})
	eight := func(i *hlo.Instruction) bool {
		for _, o := range i.Operands {
			if !strings.HasPrefix(o.Shape.Short(), "f8") {
				return false
			}
		}
		return true
	}
	products, gathers := 0, 0
	for i := range mod.All() {
		switch {
		case (i.Opcode == "convolution" || i.Opcode == "dot") && eight(i):
			products++
		case strings.HasPrefix(i.Opcode, "all-gather") && !strings.HasSuffix(i.Opcode, "-done") && eight(i):
			gathers++
		}
	}
	// Seven matrices: forward, two gradients, and all but the last forward again.
	require.GreaterOrEqual(t, products, 7*3)
	require.GreaterOrEqual(t, gathers, 7*2, "for the forward and for the backward pass")
}
