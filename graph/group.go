package graph

// Group is devices that share something out among them: the axes of the mesh
// along which they lie. The zero Group is a single device, on which every method
// returns x. Methods must be called inside a manual region.
type Group struct {
	Axes []string
	Size int // devices; 0 is 1
}

// Alone reports whether the group is a single device.
func (g Group) Alone() bool { return g.Size <= 1 }

// Devices returns the number of devices, at least 1.
func (g Group) Devices() int { return max(1, g.Size) }

// Index is the device's place in the group, an s32 scalar from 0.
func (g Group) Index(b *Builder) *Value {
	if g.Alone() {
		return b.Int(S32, 0)
	}
	return b.AxisIndex(g.Axes...)
}

// Sum adds up the devices' x; all of them get the sum.
func (g Group) Sum(x *Value) *Value {
	if g.Alone() {
		return x
	}
	return AllReduce(x, g.Axes...)
}

// Max is the largest of the devices' x.
func (g Group) Max(x *Value) *Value {
	if g.Alone() {
		return x
	}
	return AllReduceMax(x, g.Axes...)
}

// Gather puts the devices' parts together along dim. Its derivative is Scatter.
func (g Group) Gather(x *Value, dim int) *Value {
	if g.Alone() {
		return x
	}
	return AllGather(x, dim, g.Axes...)
}

// GatherSame is Gather for a result that all devices use in the same way; see
// AllGatherSame.
func (g Group) GatherSame(x *Value, dim int) *Value {
	if g.Alone() {
		return x
	}
	return AllGatherSame(x, dim, g.Axes...)
}

// Scatter adds up the devices' x and leaves each its part along dim.
func (g Group) Scatter(x *Value, dim int) *Value {
	if g.Alone() {
		return x
	}
	return ReduceScatter(x, dim, g.Axes...)
}

// Exchange cuts x into equal parts along dim split, sends part i to device i and
// puts what arrives together along dim concat.
func (g Group) Exchange(x *Value, split, concat int) *Value {
	if g.Alone() {
		return x
	}
	return AllToAll(x, split, concat, g.Axes...)
}

// Next sends x to the device by places further on, round the ring. The group must
// lie along one axis.
func (g Group) Next(x *Value, by int) *Value {
	if g.Alone() {
		return x
	}
	return Shift(x, by, g.Axes[0])
}

// Spread marks equal copies of x as the devices' own.
func (g Group) Spread(x *Value) *Value {
	if g.Alone() {
		return x
	}
	return Spread(x, g.Axes...)
}

// FromLast is x on the last device of the group and zero on the others: what is
// added up then is the last one's alone.
func (g Group) FromLast(x *Value) *Value {
	if g.Alone() {
		return x
	}
	b := x.b()
	last := Equal(g.Index(b), b.Int(S32, int64(g.Size-1)))
	return Select(last, x, b.Scalar(x.typ.DType, 0))
}
