package hf

import (
	"slices"

	"titan/dtype"
	"titan/sharding"
)

// span is a range of indices of each of some axes.
type span struct{ low, high []int }

// spans cuts a range of a dimension merged from axes of the given sizes (the
// slowest first) into boxes: at most two for each axis but the last, and one.
func spans(sizes []int, from, to int) []span {
	if len(sizes) == 1 {
		return []span{{[]int{from}, []int{to}}}
	}
	minor := 1
	for _, s := range sizes[1:] {
		minor *= s
	}
	var out []span
	part := func(i, from, to int) { // of row i of the slowest axis
		for _, s := range spans(sizes[1:], from, to) {
			out = append(out, span{append([]int{i}, s.low...), append([]int{i + 1}, s.high...)})
		}
	}
	first, last := from/minor, to/minor // rows; last is cut short unless to%minor is 0
	if from%minor != 0 {
		part(first, from%minor, min(to-first*minor, minor))
		first++
	}
	if first < last {
		whole := span{[]int{first}, []int{last}}
		for _, s := range sizes[1:] {
			whole.low, whole.high = append(whole.low, 0), append(whole.high, s)
		}
		out = append(out, whole)
	}
	if first <= last && to%minor != 0 {
		part(last, 0, to%minor)
	}
	return out
}

// read fills dst, of type d, with a region of the tensor at p: it cuts the
// region into boxes of axes, and reads each from the tensors that have it.
func (v *view) read(p place, d dtype.DType, r sharding.Region, dst []byte) error {
	c := p.rule
	to := v.to(c)
	n := len(c.axes)
	stride := make([]int, n) // in dst, in elements
	base := 0                // of index 0 of all axes, which may lie before dst
	row := 1
	choices := make([][]span, len(to.dims))
	for k := len(to.dims) - 1; k >= 0; k-- {
		sizes := make([]int, len(to.dims[k]))
		minor := 1
		for j := len(sizes) - 1; j >= 0; j-- {
			a := to.dims[k][j]
			sizes[j] = c.size[a]
			stride[a] = minor * row
			minor *= c.size[a]
		}
		base -= r.Offset[k] * row
		choices[k] = []span{{}}
		if len(sizes) > 0 {
			choices[k] = spans(sizes, r.Offset[k], r.Offset[k]+r.Size[k])
		}
		row *= r.Size[k]
	}
	low, high := make([]int, n), make([]int, n)
	for _, a := range to.nameAxes {
		low[a], high[a] = p.index[a], p.index[a]+1
	}
	var each func(k int) error
	each = func(k int) error {
		if k == len(to.dims) {
			return v.readBox(c, d, low, high, dst, base, stride)
		}
		for _, s := range choices[k] {
			for j, a := range to.dims[k] {
				low[a], high[a] = s.low[j], s.high[j]
			}
			if err := each(k + 1); err != nil {
				return err
			}
		}
		return nil
	}
	return each(0)
}

// readBox reads a box of axes from every tensor of the source that has part of it.
func (v *view) readBox(c *rule, d dtype.DType, low, high []int, dst []byte, base int, stride []int) error {
	from := v.from(c)
	low, high = slices.Clone(low), slices.Clone(high)
	count := 1
	for _, a := range from.nameAxes {
		count *= high[a] - low[a]
	}
	at := slices.Clone(low)
	for i := range count {
		for _, a := range slices.Backward(from.nameAxes) {
			n := high[a] - low[a]
			at[a] = low[a] + i%n
			i /= n
		}
		boxLow, boxHigh := slices.Clone(low), slices.Clone(high)
		for _, a := range from.nameAxes {
			boxLow[a], boxHigh[a] = at[a], at[a]+1
		}
		if err := v.readPart(c, from, d, boxLow, boxHigh, dst, base, stride); err != nil {
			return err
		}
	}
	return nil
}

// readPart reads a box of axes that lies in one tensor of the source: the
// smallest region that has it, of which it takes the elements.
func (v *view) readPart(c *rule, from side, d dtype.DType, low, high []int, dst []byte, base int, stride []int) error {
	name := c.name(from, low)
	r := sharding.Region{Offset: make([]int, len(from.dims)), Size: make([]int, len(from.dims))}
	srcStride := make([]int, len(c.axes))
	row := 1
	for k := len(from.dims) - 1; k >= 0; k-- {
		minor, first, last := 1, 0, 0
		for _, a := range slices.Backward(from.dims[k]) {
			srcStride[a] = minor * row
			first += low[a] * minor
			last += (high[a] - 1) * minor
			minor *= c.size[a]
		}
		r.Offset[k], r.Size[k] = first, last-first+1
		row *= r.Size[k]
	}
	var loops []loop
	at, total := base, 1
	for a := range c.axes {
		at += low[a] * stride[a]
		total *= high[a] - low[a]
		loops = append(loops, loop{high[a] - low[a], stride[a], srcStride[a]})
	}
	loops = merge(loops)
	have := v.types[name]
	size := d.Size()
	if have == d && r.Elements() == total && (len(loops) == 0 || len(loops) == 1 && loops[0].dst == 1 && loops[0].src == 1) {
		return v.src.ReadRegion(name, r, dst[at*size:(at+total)*size]) // as it stands
	}
	buf := make([]byte, r.Elements()*have.Size())
	if err := v.src.ReadRegion(name, r, buf); err != nil {
		return err
	}
	buf, err := convert(buf, have, d)
	if err != nil {
		return err
	}
	copyStrided(dst[at*size:], buf, loops, size)
	return nil
}
