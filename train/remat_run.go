package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"titan/internal/recipekey"
	"titan/models/decoder"
	"titan/pjrt"
)

const hostMemory = "pinned_host"

// hasHost reports whether devices can keep values in their host's memory. On the
// CPU they are in it anyway: XLA moves nothing.
func (m *Machine) hasHost() bool {
	return !m.OnCPU && slices.ContainsFunc(m.Client.LocalDevices()[0].Memories(), func(x *pjrt.Memory) bool { return x.Kind == hostMemory })
}

// checkRemat refuses what the machine cannot do for activation checkpointing, and
// returns the memory budget, 0 if there is none.
func (t *trainer) checkRemat() (budget int64, err error) {
	a, m := t.recipe.ActivationCheckpoint, t.machine
	if len(a.Offload) > 0 && !m.hasHost() {
		return 0, recipekey.Errorf("activation_checkpoint.offload", "cannot be had: the devices of %s have no memory of a host besides their own; leave it out", m.Client.Platform())
	}
	if a.Mode != decoder.RematBudget {
		return 0, nil
	}
	b, err := a.Budget()
	if err != nil {
		return 0, err
	}
	has := int64(0)
	if b.Bytes == 0 {
		s, err := m.Client.LocalDevices()[0].MemoryStats()
		if err != nil && !pjrt.IsUnimplemented(err) {
			return 0, err
		}
		has = s.Limit
	}
	if budget = b.Of(has); budget <= 0 {
		return 0, recipekey.Errorf("activation_checkpoint.memory_budget", "is a share of what a device has, and %s does not say how much that is; give a size, such as \"14GiB\"", m.Client.Platform())
	}
	return budget, nil
}

// compileStep makes the program of the step, under the policy that fits if there is
// a memory budget.
func (t *trainer) compileStep(ctx context.Context) (err error) {
	compile := func(s *Step) (*Compiled, error) {
		return t.compileOne(ctx, func() (*Compiled, error) { return t.machine.Compile(s.Module) })
	}
	if t.budget == 0 {
		t.exe, err = compile(t.step)
		return err
	}
	fit, err := FitStep(t.options, t.budget, t.machine.hasHost(), func(s *Step) (Trial[*Compiled], error) {
		c, err := compile(s)
		if err != nil {
			return Trial[*Compiled]{}, err
		}
		m, err := c.Exe.MemoryStats()
		if err != nil {
			c.Close()
			return Trial[*Compiled]{}, err
		}
		return Trial[*Compiled]{Program: c, InUse: m.Needed(), Close: c.Close}, nil
	})
	var none *BudgetError
	if errors.As(err, &none) && t.recipe.ActivationCheckpoint.MemoryBudget != "" {
		if needs, _ := none.needs(); needs > t.budget {
			none.Advice = append(none.Advice, fmt.Sprintf("activation_checkpoint.memory_budget = \"%dMiB\" if devices have it", (needs+1<<20-1)>>20))
		}
	}
	if err != nil {
		return err
	}
	t.options, t.step, t.exe = fit.Options, fit.Step, fit.Program
	for _, line := range fit.Lines() {
		t.logf("%s", line)
	}
	return nil
}
