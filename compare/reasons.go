package compare

import (
	"slices"
	"strings"
)

// reasons explains the signs.
func (c *Comparison) reasons() []string {
	var out []string
	if slices.ContainsFunc(c.Rows, func(r Row) bool { return slices.ContainsFunc(r.Cells, func(x Cell) bool { return x.Best }) }) {
		out = append(out, bestSign+" the best of what can be compared")
	}
	if c.Marked() {
		out = append(out, markSign+" cannot be compared with A and is not ranked:")
		for _, r := range c.Reasons() {
			out = append(out, "  "+r)
		}
	}
	out = append(out, c.Notes...)
	return append(out, c.resultNotes()...)
}

// Reasons lists why figures are marked, each with the results that it is for.
func (c *Comparison) Reasons() []string {
	var order []string
	who := map[string][]int{}
	add := func(reason string, i int) {
		if _, ok := who[reason]; !ok {
			order = append(order, reason)
		}
		who[reason] = append(who[reason], i)
	}
	for i, marks := range c.Marks {
		var silent []string
		for _, m := range marks {
			if m.Here == "" && m.Aspect != Warm {
				silent = append(silent, string(m.Aspect))
				continue
			}
			add(m.String(), i)
		}
		if len(silent) > 0 {
			add("not stated: "+strings.Join(silent, ", "), i)
		}
	}
	var out []string
	for _, reason := range order {
		out = append(out, span(who[reason])+": "+reason)
	}
	return out
}

// resultNotes lists the notes of the results, each with whose it is.
func (c *Comparison) resultNotes() []string {
	var order []string
	who := map[string][]int{}
	for i, r := range c.Results {
		for _, n := range r.Notes {
			if _, ok := who[n]; !ok {
				order = append(order, n)
			}
			who[n] = append(who[n], i)
		}
	}
	for k, n := range order {
		order[k] = span(who[n]) + ": " + n
	}
	return order
}

// span names results by their letters: B–D, F.
func span(at []int) string {
	var parts []string
	for i := 0; i < len(at); {
		j := i
		for j+1 < len(at) && at[j+1] == at[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, Letter(at[i]))
		case 1:
			parts = append(parts, Letter(at[i]), Letter(at[j]))
		default:
			parts = append(parts, Letter(at[i])+"–"+Letter(at[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
