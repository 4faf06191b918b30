package compare

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
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
	var rows [][]string
	for _, r := range c.Rows {
		row := []string{r.Label}
		for _, cell := range r.Cells {
			row = append(row, cellText(cell))
		}
		rows = append(rows, row)
	}
	c.block(&b, columns, "figure", rows)
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

// reasons explains the signs.
func (c *Comparison) reasons() []string {
	var out []string
	best, marked := false, false
	for _, r := range c.Rows {
		for _, cell := range r.Cells {
			best, marked = best || cell.Best, marked || cell.Marked && cell.Value != nil
		}
	}
	if best {
		out = append(out, bestSign+" the best of what can be compared")
	}
	if marked {
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

// Markdown is the comparison for a page or a merge request.
func (c *Comparison) Markdown() string {
	var b strings.Builder
	for i, r := range c.Results {
		fmt.Fprintf(&b, "- **%s** %s: %s\n", Letter(i), escape(r.Name), escape(r.Describe()))
	}
	head := "| %s |"
	rule := "|---|"
	for i := range c.Results {
		head += " " + Letter(i) + " |"
		rule += "---:|"
	}
	table := func(title string, rows [][]string, bold func(row, column int) bool) {
		if len(rows) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n"+head+"\n%s\n", title, rule)
		for i, row := range rows {
			b.WriteString("|")
			for k, s := range row {
				if s = escape(s); bold != nil && bold(i, k) {
					s = "**" + strings.TrimSuffix(s, " \\"+bestSign) + "**"
				}
				b.WriteString(" " + s + " |")
			}
			b.WriteString("\n")
		}
	}
	table("recipe", c.differenceRows(), nil)
	var rows [][]string
	for _, r := range c.Rows {
		row := []string{r.Label}
		for _, cell := range r.Cells {
			row = append(row, cellText(cell))
		}
		rows = append(rows, row)
	}
	table("figure", rows, func(i, k int) bool { return k > 0 && c.Rows[i].Cells[k-1].Best })
	b.WriteString("\n")
	for _, line := range c.reasons() {
		if strings.HasPrefix(line, bestSign) {
			line = "bold: the best of what can be compared"
		}
		if strings.HasPrefix(line, "  ") {
			b.WriteString("  ")
		}
		b.WriteString("- " + escape(strings.TrimSpace(line)) + "\n")
	}
	return b.String()
}

// escape keeps a text from being Markdown.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "\n", " ", "<", "&lt;").Replace(s)
}

// CSV has a line for each figure of each result.
func (c *Comparison) CSV() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	lines := [][]string{{"figure", "result", "name", "kind", "value", "change_percent", "best", "marked", "why"}}
	for _, r := range c.Rows {
		for i, cell := range r.Cells {
			value, change := "", ""
			if cell.Value != nil {
				value = strconv.FormatFloat(*cell.Value, 'g', -1, 64)
			}
			if cell.Change != nil {
				change = strconv.FormatFloat(*cell.Change, 'g', -1, 64)
			}
			why := make([]string, len(cell.Why))
			for k, a := range cell.Why {
				why[k] = string(a)
			}
			lines = append(lines, []string{r.Key, Letter(i), c.Results[i].Name, string(c.Results[i].Kind), value, change,
				strconv.FormatBool(cell.Best), strconv.FormatBool(cell.Marked), strings.Join(why, " ")})
		}
	}
	if err := w.WriteAll(lines); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return b.Bytes(), nil
}

// JSON is the comparison for programs.
func (c *Comparison) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return append(out, '\n'), nil
}
