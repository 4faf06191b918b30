package compare

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Signs behind figures.
const (
	bestSign = "*"
	markSign = "†"
)

// Letter names the i-th result in tables: A, B, …, Z, AA, …
func Letter(i int) string {
	s := ""
	for i++; i > 0; i = (i - 1) / 26 {
		s = string(rune('A'+(i-1)%26)) + s
	}
	return s
}

// Describe says in a line what a result was measured on.
func (r *Result) Describe() string {
	parts := []string{string(r.Kind)}
	if r.State != "" {
		parts[0] += ", " + r.State
	}
	add := func(format string, s string) {
		if s != "" {
			parts = append(parts, fmt.Sprintf(format, s))
		}
	}
	add("%s", r.Basis[Model])
	add("%s tokens", r.Basis[SeqLen])
	add("%s", r.Basis[Precision])
	if r.Devices > 0 {
		where := size(r.Chips, r.Devices)
		if r.Basis[Platform] == cpu {
			where = size(0, r.Devices)
		}
		add("%s", where+" of "+r.Basis[Platform])
	}
	if e := r.Basis[Effort]; e != "default" {
		add("compiled with %s effort", e)
	}
	return strings.Join(parts, "; ")
}

// ChangeText writes the change of a cell, "" if there is none worth a word.
func (c Cell) ChangeText() string {
	if c.Change == nil || math.Abs(*c.Change) < 0.05 {
		return ""
	}
	return fmt.Sprintf("%+.1f%%", *c.Change)
}

// cellText is a cell with its change and signs.
func cellText(c Cell) string {
	s := c.Text
	if change := c.ChangeText(); change != "" {
		s += " (" + change + ")"
	}
	if c.Best {
		s += " " + bestSign
	}
	if c.Marked && c.Value != nil {
		s += " " + markSign
	}
	return s
}

// Text lays the comparison out for a terminal of so many columns; a table that is
// wider is cut into several, each with the base.
func (c *Comparison) Text(columns int) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, r := range c.Results {
		fmt.Fprintf(w, "%s\t%s\t%s\n", Letter(i), r.Name, r.Describe())
	}
	_ = w.Flush() // a strings.Builder takes everything
	c.block(&b, columns, "recipe", c.differenceRows())
	if len(c.Differences) == 0 && c.recipes() > 1 {
		b.WriteString("\nthe recipes are the same\n")
	}
	c.block(&b, columns, "figure", c.figureRows())
	for _, line := range c.reasons() {
		b.WriteString("\n" + line)
	}
	b.WriteString("\n")
	return b.String()
}

// recipes counts the results whose recipe is known.
func (c *Comparison) recipes() int {
	n := 0
	for _, r := range c.Results {
		if r.Recipe != nil {
			n++
		}
	}
	return n
}

func (c *Comparison) differenceRows() [][]string {
	var rows [][]string
	for _, d := range c.Differences {
		row := []string{d.Key}
		for i, v := range d.Values {
			if c.Results[i].Recipe == nil {
				v = "?"
			}
			row = append(row, v)
		}
		rows = append(rows, row)
	}
	return rows
}

func (c *Comparison) figureRows() [][]string {
	var rows [][]string
	for _, r := range c.Rows {
		row := []string{r.Label}
		for _, cell := range r.Cells {
			row = append(row, cellText(cell))
		}
		rows = append(rows, row)
	}
	return rows
}

// block writes a table, in parts that fit.
func (c *Comparison) block(b *strings.Builder, columns int, title string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	n := len(c.Results)
	wide := make([]int, n+1)
	head := []string{title}
	for i := range n {
		head = append(head, Letter(i))
	}
	for _, row := range append([][]string{head}, rows...) {
		for k, s := range row {
			wide[k] = max(wide[k], utf8.RuneCountInString(s)+2)
		}
	}
	for from := 1; from < n; {
		room, to := columns-wide[0]-wide[1], from
		for to < n && (to == from || room >= wide[to+1]) {
			room -= wide[to+1]
			to++
		}
		b.WriteString("\n")
		for _, row := range append([][]string{head}, rows...) {
			line := pad(row[0], wide[0]) + pad(row[1], wide[1])
			for k := from; k < to; k++ {
				line += pad(row[k+1], wide[k+1])
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		from = to
	}
	if n == 1 {
		b.WriteString("\n")
		for _, row := range append([][]string{head}, rows...) {
			b.WriteString(strings.TrimRight(pad(row[0], wide[0])+row[1], " ") + "\n")
		}
	}
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}
