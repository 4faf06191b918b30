package compare

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

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
	table("figure", c.figureRows(), func(i, k int) bool { return k > 0 && c.Rows[i].Cells[k-1].Best })
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
