package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/train/traffic"
)

// wide is a model of which each of four devices' columns of the embedding fill lanes,
// and with more rows than the tokens of a pass.
func wide(o *StepOptions) { o.Model.Dim, o.Model.VocabSize = 512, 2048 }

// Where devices look up their columns of the embedding, loss and every gradient are
// those of one device; and they do so in these cases.
func TestEmbeddingByColumns(t *testing.T) {
	one := func(o *StepOptions) { wide(o); o.Model.Layers = 1 }
	tied := func(o *StepOptions) { one(o); o.Model.TieEmbeddings = true }
	quickly(t)
	cases := []parityCase{{mesh: "dp_replicate=2 cp=2 tp=2", passes: 2, change: tied}}
	if long {
		cases = append(cases, parityCase{mesh: "dp_shard=2 ep=2 tp=2", change: one})
	}
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			o := c.options(t)
			plan, err := NewPlan(o.Mesh, o.Model, o.Placement)
			require.NoError(t, err)
			require.True(t, traffic.Step{Model: o.Model, Plan: plan, Rows: o.Rows, SeqLen: o.SeqLen}.EmbedsByColumns())

			params := parityParams(o.Model)
			want, got := parityCase{mesh: "dp_shard=1", change: c.change}.run(t, params), c.run(t, params)
			for n, x := range want.scalars {
				require.InEpsilon(t, x, got.scalars[n], 2e-6, n)
			}
			worst, name := want.compare(got)
			t.Logf("largest difference of a gradient: %.2g of its largest element (%s)", worst, name)
			require.Less(t, worst, 2e-5, name)
		})
	}
}
