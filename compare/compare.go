package compare

import (
	"errors"
	"math"
	"slices"
)

// Comparison is results side by side. The first is the base that the others are
// compared with.
type Comparison struct {
	Schema      int          `json:"schema"`
	Results     []*Result    `json:"results"`
	Differences []Difference `json:"recipe_differences"`
	Rows        []Row        `json:"rows"`
	// Marks are by result: why figures of it cannot be compared with the base's.
	Marks [][]Mark `json:"marks"`
	// Notes say what derived figures are of.
	Notes []string `json:"notes,omitempty"`
}

// Schema is the version of the JSON form of a Comparison.
const Schema = 1

// Row is a figure of all results.
type Row struct {
	Key   string `json:"key"`
	Label string `json:"label"`
	Cells []Cell `json:"cells"`
	kind  RowKind
}

// Cell is a figure of a result.
type Cell struct {
	Value *float64 `json:"value"` // nil: unknown
	Text  string   `json:"text"`
	// Change is by how much the value differs from the base's, in percent.
	Change *float64 `json:"change_percent,omitempty"`
	// Best says that of the values that can be compared none is better.
	Best bool `json:"best,omitempty"`
	// Marked says that the value cannot be compared with the base's: Why are the
	// aspects.
	Marked bool     `json:"marked,omitempty"`
	Why    []Aspect `json:"why,omitempty"`
}

// Options say how to compare.
type Options struct {
	// TargetLoss is the loss that a run must reach for the cost of a qualified result;
	// 0: none.
	TargetLoss float64
}

// New compares results with the first of them.
func New(results []*Result, o Options) (*Comparison, error) {
	if len(results) == 0 {
		return nil, errors.New("compare: there is nothing to compare")
	}
	c := &Comparison{Schema: Schema, Results: results, Differences: Differences(results)}
	base := results[0]
	for _, r := range results {
		m := append(marks(r, base), defects(r)...)
		if r != base {
			for _, d := range defects(base) {
				d.What = "of the base " + d.What
				m = append(m, d)
			}
		}
		c.Marks = append(c.Marks, m)
	}
	values := make([]map[string]float64, len(results))
	for i, r := range results {
		values[i] = map[string]float64{}
		for k, v := range r.Figures {
			values[i][k] = v
		}
	}
	c.derive(values, o)
	for _, kind := range Rows {
		if row, ok := c.row(kind, values); ok {
			c.Rows = append(c.Rows, row)
		}
	}
	return c, nil
}

// row makes the row of a figure; false: no result has it.
func (c *Comparison) row(kind RowKind, values []map[string]float64) (Row, bool) {
	row := Row{Key: kind.Key, Label: kind.Label, kind: kind, Cells: make([]Cell, len(values))}
	base, hasBase := values[0][kind.Key]
	found := false
	for i, v := range values {
		cell := &row.Cells[i]
		x, ok := v[kind.Key]
		if !ok || !finite(x) {
			cell.Text = kind.Write(math.NaN())
			continue
		}
		found = true
		cell.Value, cell.Text = &x, kind.Write(x)
		if money := c.Results[i].Currency; money != "" && (kind.Key == CostToken || kind.Key == TargetCost) {
			cell.Text += " " + money
		}
		evidenceOnly := true
		for _, m := range c.Marks[i] {
			if kind.in(m.Spoils) {
				cell.Marked = true
				cell.Why = append(cell.Why, m.Aspect)
				evidenceOnly = evidenceOnly && (m.Aspect == Evidence || m.Aspect != Warm && (m.Here == "" || m.Base == ""))
			}
		}
		// How far a prediction is from a measurement is worth knowing, though neither
		// is better and what was published does not state everything.
		if i > 0 && hasBase && base != 0 && kind.Better != Neither && (!cell.Marked || evidenceOnly) {
			change := 100 * (x/base - 1)
			if finite(change) {
				cell.Change = &change
			}
		}
	}
	row.rank()
	return row, found
}

// rank marks the best of the values that can be compared, if there are two at
// least and they differ.
func (r *Row) rank() {
	if r.kind.Better == Neither || r.Cells[0].Value == nil {
		return
	}
	var fit []int
	for i, cell := range r.Cells {
		if cell.Value != nil && !cell.Marked {
			fit = append(fit, i)
		}
	}
	if len(fit) < 2 || fit[0] != 0 {
		return
	}
	best := *r.Cells[fit[0]].Value
	for _, i := range fit[1:] {
		if v := *r.Cells[i].Value; r.kind.Better == Higher && v > best || r.kind.Better == Lower && v < best {
			best = v
		}
	}
	near := func(i int) bool { return math.Abs(*r.Cells[i].Value-best) <= sameness*math.Abs(best) }
	differ := slices.ContainsFunc(fit, func(i int) bool { return !near(i) })
	for _, i := range fit {
		r.Cells[i].Best = differ && near(i)
	}
}

// sameness is by how much two figures may differ, as a share, and be equally good.
const sameness = 5e-4

// Spoiled reports whether figures of a group of the i-th result cannot be compared
// with the base's.
func (c *Comparison) Spoiled(i int, g Group) bool {
	return slices.ContainsFunc(c.Marks[i], func(m Mark) bool { return slices.Contains(m.Spoils, g) })
}

// Marked reports whether any figure cannot be compared.
func (c *Comparison) Marked() bool {
	for _, r := range c.Rows {
		for _, cell := range r.Cells {
			if cell.Marked && cell.Value != nil {
				return true
			}
		}
	}
	return false
}
