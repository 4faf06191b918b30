package graph

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// String is a table of the costs: arithmetic and traffic by class, for the whole
// mesh and for one device, memory of inputs and outputs, collectives, and the
// ten ops that compute most.
func (c Cost) String() string {
	var sb strings.Builder
	w := tabwriter.NewWriter(&sb, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d devices\tflops\tbytes\tflops/device\tbytes/device\t\n", c.Devices)
	row := func(name string, g, d Work) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", name, si(g.Flops), si(g.Bytes), si(d.Flops), si(d.Bytes))
	}
	for k := range c.Global {
		if c.Global[k] != (Work{}) {
			row(CostClass(k).String(), c.Global[k], c.Device[k])
		}
	}
	row("all", Work{c.Global.Flops(), c.Global.Bytes()}, Work{c.Device.Flops(), c.Device.Bytes()})
	for _, p := range []struct {
		name string
		size Size
	}{{"inputs", c.Inputs}, {"outputs", c.Outputs}, {"donated", c.Donated}} {
		fmt.Fprintf(w, "%s\t\t%s\t\t%s\t\n", p.name, si(p.size.Global), si(p.size.Device))
	}
	w.Flush()
	if len(c.Collectives) > 0 {
		sb.WriteByte('\n')
		w.Init(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "collective\taxes\tcount\tbytes\tsent\t\n")
		for _, cc := range c.Collectives {
			kind := cc.Kind
			if cc.Implied {
				kind += " (implied)"
			}
			fmt.Fprintf(w, "%s\t%s\t%g\t%s\t%s\t\n", kind, strings.Join(cc.Axes, ","), cc.Count, si(cc.Bytes), si(cc.Wire))
		}
		w.Flush()
	}
	sb.WriteByte('\n')
	w.Init(&sb, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "op\tresult\ttimes\tsplit over\tflops/device\tbytes/device\tline\n")
	for _, op := range c.Top(10) {
		fmt.Fprintf(w, "%s\t%v\t%g\t%s\t%s\t%s\t%s\n", op.Op, op.Result, op.Times, strings.Join(op.Split, ","), si(op.Device.Flops), si(op.Device.Bytes), op.Pos)
	}
	w.Flush()
	for _, line := range c.UnknownTrips {
		fmt.Fprintf(&sb, "\n%s: a while loop, whose body is counted once", line)
	}
	return sb.String()
}

// si writes x with a decimal prefix: 1.50 G.
func si(x float64) string {
	prefixes := []string{"", " k", " M", " G", " T", " P", " E"}
	i := 0
	for x >= 1000 && i+1 < len(prefixes) {
		x /= 1000
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%g", x)
	}
	return fmt.Sprintf("%.2f%s", x, prefixes[i])
}
