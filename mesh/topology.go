package mesh

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Topology names the machines of a job: one or several equal slices of a TPU
// generation. Chips of a slice are joined by ICI links; slices only share the
// data-centre network.
type Topology struct {
	Kind   string // "v4", "v5e", "v5p", "v6e" or "tpu7x"
	Shape  []int  // chips along each dimension of one slice's torus
	Slices int    // number of slices, at least 1
}

// ParseTopology reads "kind:AxB", "kind:AxBxC" or either followed by "*N" for N
// slices: "v5e:4x4", "tpu7x:8x8x16", "v5e:16x16*2". It refuses shapes that no
// pod offers, naming the nearest one that can be had.
func ParseTopology(s string) (Topology, error) {
	bad := func(format string, args ...any) (Topology, error) {
		return Topology{}, fmt.Errorf("mesh: topology %q: %s; write kind:AxB or kind:AxBxC, with *N for N slices, as in \"v5e:4x4\" or \"tpu7x:8x8x16*2\"",
			s, fmt.Sprintf(format, args...))
	}
	kind, rest, ok := strings.Cut(s, ":")
	if !ok {
		return bad("there is no colon between kind and shape")
	}
	t := Topology{Kind: kind, Slices: 1}
	rest, count, several := strings.Cut(rest, "*")
	if several {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return bad("%q is not a number of slices", count)
		}
		t.Slices = n
	}
	for _, f := range strings.Split(rest, "x") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return bad("%q is not a number of chips", f)
		}
		t.Shape = append(t.Shape, n)
	}
	if err := t.Validate(); err != nil {
		return Topology{}, err
	}
	return t, nil
}

// Validate reports an unknown kind, a shape that no pod of that kind offers
// (with the nearest one that it does), or fewer than one slice.
func (t Topology) Validate() error {
	c, err := ChipOf(t.Kind)
	if err != nil {
		return err
	}
	if c.Kind != t.Kind {
		return fmt.Errorf("mesh: topology kind %q is the name of a device; write %q", t.Kind, c.Kind)
	}
	if t.Slices < 1 {
		return fmt.Errorf("mesh: topology %s has %d slices; the least is 1", joinShape(t.Shape), t.Slices)
	}
	if err := checkShape(c, t.Shape); err != nil {
		return err
	}
	if t.Slices > math.MaxInt32/t.DevicesPerSlice() {
		return fmt.Errorf("mesh: topology %v has more than %d devices", t, math.MaxInt32)
	}
	return nil
}

// String returns the topology as ParseTopology reads it.
func (t Topology) String() string {
	if t.Slices > 1 {
		return fmt.Sprintf("%s*%d", t.SliceName(), t.Slices)
	}
	return t.SliceName()
}

// SliceName returns the name of one slice, "tpu7x:8x8x16", which is what libtpu
// takes as a topology name; it takes the number of slices as an option.
func (t Topology) SliceName() string { return t.Kind + ":" + joinShape(t.Shape) }

// Chip returns the facts of the topology's chips.
func (t Topology) Chip() (Chip, error) { return ChipOf(t.Kind) }

// ChipsPerSlice returns the number of chips of one slice.
func (t Topology) ChipsPerSlice() int { return product(t.Shape) }

// Chips returns the number of chips of all slices.
func (t Topology) Chips() int { return t.ChipsPerSlice() * t.Slices }

// DevicesPerChip returns the number of devices a runtime shows for one chip, 0
// for an unknown kind.
func (t Topology) DevicesPerChip() int {
	c, err := ChipOf(t.Kind)
	if err != nil {
		return 0
	}
	return c.Devices
}

// DevicesPerSlice returns the number of devices of one slice.
func (t Topology) DevicesPerSlice() int { return t.ChipsPerSlice() * t.DevicesPerChip() }

// Devices returns the number of devices of all slices.
func (t Topology) Devices() int { return t.Chips() * t.DevicesPerChip() }

// ChipsPerHost returns the number of chips that one host drives: the usual
// number of the generation, or all of a smaller slice. (A v5e or v6e slice of
// 2x4 can also be had as one host of eight.) It is 0 for an unknown kind.
func (t Topology) ChipsPerHost() int {
	c, err := ChipOf(t.Kind)
	if err != nil {
		return 0
	}
	return min(c.HostChips[0], t.ChipsPerSlice())
}

// Hosts returns the number of hosts of all slices, 0 for an unknown kind.
func (t Topology) Hosts() int {
	per := t.ChipsPerHost()
	if per == 0 {
		return 0
	}
	return t.Chips() / per
}

// CheckAxes reports why a mesh of these axes does not fit the topology: another
// number of devices, or slices that the axes named by outer do not count; see
// ForTopology.
func (t Topology) CheckAxes(axes []Axis, outer ...string) error {
	if err := t.Validate(); err != nil {
		return err
	}
	n, err := checkAxes(axes)
	if err != nil {
		return err
	}
	if n != t.Devices() {
		return fmt.Errorf("mesh: %s is %d devices, the topology %v has %d (%d chips of %d devices)",
			describe(axes), n, t, t.Devices(), t.Chips(), t.DevicesPerChip())
	}
	_, err = acrossSlices(axes, t.Slices, outer)
	return err
}

// Equal reports whether both name the same machines.
func (t Topology) Equal(o Topology) bool {
	return t.Kind == o.Kind && t.Slices == o.Slices && slices.Equal(t.Shape, o.Shape)
}

func product(xs []int) int {
	n := 1
	for _, x := range xs {
		n *= x
	}
	return n
}

func joinShape(shape []int) string {
	s := make([]string, len(shape))
	for i, x := range shape {
		s[i] = strconv.Itoa(x)
	}
	return strings.Join(s, "x")
}
