package sweep

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable prints the points for a terminal, with published series.
func (s *Sweep) WriteTable(w io.Writer, published ...*Series) error {
	t := s.table(published)
	fmt.Fprintln(w, s.Title())
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range t.notes {
		if _, err := fmt.Fprintf(w, "note  %s\n", n); err != nil {
			return err
		}
	}
	return nil
}

// WriteMarkdown writes the points as a Markdown table.
func (s *Sweep) WriteMarkdown(w io.Writer, published ...*Series) error {
	t := s.table(published)
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + strings.ReplaceAll(c, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s\n\n", s.Title())
	header := make([]string, len(t.header))
	for i, h := range t.header {
		header[i] = strings.ToLower(h)
	}
	line(header)
	b.WriteString("|" + strings.Repeat("---|", len(header)) + "\n")
	for _, r := range t.rows {
		line(r)
	}
	if len(t.notes) > 0 {
		b.WriteString("\n")
	}
	for _, n := range t.notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteCSV writes all figures of the points, unrounded, a line each, and those of
// published series.
func (s *Sweep) WriteCSV(w io.Writer, published ...*Series) error {
	c := csv.NewWriter(w)
	_ = c.Write(append([]string{
		"id", "source", "status", "chips_asked", "chips", "topology", "devices", "mesh", "global_batch", "local_batch", "passes", "tokens_per_step",
		"step_seconds", "step_seconds_low", "step_seconds_high", "tokens_per_second", "tokens_per_second_device", "tokens_per_second_chip",
		"mfu_percent_causal", "mfu_percent_full", "efficiency", "memory_bytes", "memory_limit_bytes", "exposed_communication_seconds", "wall_seconds", "error",
	}, s.Keys...))
	for i := range s.Points {
		p := &s.Points[i]
		causal, full, exposed := 0.0, 0.0, ""
		if p.MFU != nil {
			causal, full = p.MFU.Causal, p.MFU.Full
		}
		if p.Exposed != nil {
			exposed = strconv.FormatFloat(*p.Exposed, 'g', -1, 64) // 0 is known, too
		}
		row := []string{
			p.ID, string(p.Source), string(p.Status), whole(p.Asked), whole(p.Chips), p.Topology, whole(p.Devices), p.MeshString(), whole(p.GlobalBatch), whole(p.LocalBatch), whole(p.Passes), whole(int(p.Tokens)),
			number(p.StepSeconds), number(p.LowSeconds), number(p.HighSeconds), number(p.TPS), number(p.TPSDevice), number(p.TPSChip),
			number(causal), number(full), number(p.Efficiency), whole(int(p.Memory)), whole(int(p.Limit)), exposed, number(p.Wall), p.Error,
		}
		for _, key := range s.Keys {
			value := ""
			for _, v := range p.Values {
				if v.Key == key {
					value = v.Value
				}
			}
			row = append(row, value)
		}
		_ = c.Write(row)
	}
	for _, series := range published {
		for i, r := range series.Points {
			var causal, full float64
			if m := series.ByConvention(r); m != nil {
				causal, full = m.Causal, m.Full
			}
			row := make([]string, 26+len(s.Keys))
			copy(row, []string{fmt.Sprintf("%s-%d", series.Name, i+1), "published", string(OK), "", whole(r.Chips), "", whole(r.Devices), "", whole(r.GlobalBatch), "", "", whole(r.GlobalBatch * series.SeqLen),
				number(r.StepSeconds), "", "", number(r.TPSDevice * float64(r.Devices)), number(r.TPSDevice), number(r.TPSChip), number(causal), number(full), number(r.Efficiency)})
			_ = c.Write(row)
		}
	}
	c.Flush()
	return c.Error()
}

// whole and number leave out what is not known.
func whole(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func number(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
