package train

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/decoder"
)

// A run within a memory budget says what it chose, and learns what any run learns.
func TestRunWithinBudget(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	plain := recipe(t, data)
	run(t, plain)
	within := recipe(t, data, "activation_checkpoint.mode=memory_budget", "activation_checkpoint.memory_budget=4GiB")
	_, log := run(t, within)
	require.Contains(t, log, "activation checkpointing within 4.00 GiB a device:\n  none: +0.0% arithmetic, estimated ")
	require.Regexp(t, `  none: .*, as compiled \d+\.\d MiB <- chosen\n  selective, `, log)
	require.Equal(t, curve(t, plain, loss, 6), curve(t, within, loss, 6))

	small := recipe(t, data, "activation_checkpoint.mode=memory_budget", "activation_checkpoint.memory_budget=0.05MiB")
	var out bytes.Buffer
	_, err := Run(ctx, RunOptions{Recipe: small, Version: "test", Out: &out})
	var e *BudgetError
	require.ErrorAs(t, err, &e)
	require.ErrorContains(t, err, "parameters and optimizer state alone take")
}

// What a machine cannot do is refused before anything is compiled, also where the
// recipe names a plugin by its path.
func TestRematOnAMachineWithoutIt(t *testing.T) {
	r := recipe(t, dataset(t, documents(1, 40, 5, 60)...))
	m, err := OpenMachine(r)
	require.NoError(t, err)
	defer m.Close()
	for want, a := range map[string]decoder.ActivationCheckpoint{
		"activation_checkpoint.offload: cannot be had: the devices of cpu have no memory of a host besides their own": {Mode: decoder.RematFull, Offload: []string{decoder.NameLayerIn}},
		"activation_checkpoint.memory_budget: is a share of what a device has, and cpu does not say how much that is": {Mode: decoder.RematBudget, MemoryBudget: "90%"},
	} {
		x := &trainer{recipe: again(r, nil), machine: m}
		x.recipe.ActivationCheckpoint = a
		_, err := x.checkRemat()
		require.ErrorContains(t, err, want)
	}
}
