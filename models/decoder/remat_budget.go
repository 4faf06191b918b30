package decoder

import (
	"slices"
	"strconv"
	"strings"

	"titan/internal/recipekey"
)

// MemoryBudget is how much memory a training step may take on a device: some
// bytes, or a share of what the device has.
type MemoryBudget struct {
	Bytes int64
	Share float64 // in (0, 1] if Bytes is 0
}

// Of is the budget in bytes on a device that has so many; 0 if that is unknown and
// the budget a share of it.
func (m MemoryBudget) Of(device int64) int64 {
	if m.Bytes > 0 {
		return m.Bytes
	}
	return int64(m.Share * float64(device))
}

// Budget reads memory_budget.
func (a ActivationCheckpoint) Budget() (MemoryBudget, error) {
	s := strings.TrimSpace(a.MemoryBudget)
	if s == "" {
		return MemoryBudget{Share: 1}, nil
	}
	for unit, size := range map[string]float64{"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "%": 0} {
		number, ok := strings.CutSuffix(s, unit)
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch {
		case err != nil || !(x > 0):
		case unit == "%" && x <= 100:
			return MemoryBudget{Share: x / 100}, nil
		case unit != "%" && x*size >= 1 && x*size < 1<<53:
			return MemoryBudget{Bytes: int64(x * size)}, nil
		}
	}
	return MemoryBudget{}, recipekey.Errorf("activation_checkpoint.memory_budget", "%q is neither a size in KiB, MiB, GiB or TiB such as \"14GiB\", nor a share of up to 100 per cent such as \"90%%\"", a.MemoryBudget)
}

// Candidates lists the policies that mode memory_budget chooses from, from those
// that keep most: all, then sets of values, every fourth and every second layer
// checkpointed, nothing but layers' inputs, and what a.Offload names in the host's
// memory.
func (a ActivationCheckpoint) Candidates(c *Config) []ActivationCheckpoint {
	selective := func(option string) ActivationCheckpoint {
		return ActivationCheckpoint{Mode: RematSelective, SelectiveOption: option}
	}
	out := []ActivationCheckpoint{{Mode: RematNone}}
	for _, n := range []int{8, 4, 2} {
		if c.Layers >= 2*n {
			out = append(out, selective(strconv.Itoa(n)))
		}
	}
	for _, names := range [][]string{
		presets["minimal_with_context"],
		{NameAttnOut, NameResid, NameGate, NameUp, NameRouter, NameExpertIn, NameExpertOut},
		presets["minimal"],
		presets["save_dot_with_context_except_mlp"],
		{NameAttnOut, NameResid},
		presets["save_dot_except_mlp"],
		presets["save_out_proj"],
	} {
		s := selective(optionOp)
		s.Save = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !c.HasValue(n) })
		for name, set := range presets {
			if slices.Equal(set, names) {
				s = selective(name)
			}
		}
		out = append(out, s)
	}
	out = append(out, ActivationCheckpoint{Mode: RematFull})
	if len(a.Offload) > 0 {
		out = append(out, ActivationCheckpoint{Mode: RematFull, Offload: slices.Clone(a.Offload)})
	}
	return out
}
