package main

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
)

// Every case's recipe loads, and is for the devices, sequences and policy that the
// case is known for, whatever becomes of the recipes that it extends.
func TestRecipes(t *testing.T) {
	known := map[string][3]int{ // devices, sequences of a step, their length
		"B1": {8, 8, 1024}, "B1b": {8, 16, 2048}, "B2": {8, 16, 2048}, "B2e": {8, 16, 2048},
		"B3": {128, 256, 8192}, "B4": {512, 8192, 4096}, "B5": {256, 1024, 8192},
	}
	// What layers keep, where it is not their inputs on the device only.
	kept := map[string]string{
		"B3": "selective, save q, k, v, attn_out", "B4": "full, offload layer_in", "B5": "full, offload layer_in, q, k, v, resid",
	}
	for _, c := range cases {
		r, _, err := configs.Load(c.recipe, nil)
		require.NoError(t, err, c.name)
		devices, err := r.DataParallel()
		require.NoError(t, err, c.name)
		batch, err := r.GlobalBatch()
		require.NoError(t, err, c.name)
		require.Equal(t, known[c.name], [3]int{devices, batch, r.Training.SeqLen}, c.name)
		require.Equal(t, cmp.Or(kept[c.name], "full"), r.ActivationCheckpoint.String(), c.name)
		require.Equal(t, "bfloat16", r.Training.MixedPrecisionReduce, c.name)
	}
}

// A case is chosen by its name, or with its effort; others are refused.
func TestChoose(t *testing.T) {
	for list, want := range map[string]int{"": len(cases), "B1": 3, "B1/O1,B3": 2} {
		got, err := choose(list)
		require.NoError(t, err)
		require.Len(t, got, want, list)
	}
	_, err := choose("B1/O3")
	require.ErrorContains(t, err, `there is no "B1/O3"`)
}
