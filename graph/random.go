package graph

import (
	"encoding/binary"
	"math"
	"slices"

	"titan/dtype"
)

// randomOptions: the array is the part of a larger one, of shape global, that
// begins at starts.
type randomOptions struct {
	global []int
	starts []*Value
}

// RandomOption changes which elements are drawn.
type RandomOption func(*randomOptions)

// PartOf draws the elements that an array of shape global, drawn with the same
// key, has from starts on (one non-negative integer scalar for each dimension).
//
// Inside a ShardMap every device sees its own part of the data, so without
// PartOf all devices draw the same elements, those at the start of the global
// array. With it each can draw its own: for an array whose first dimension is
// split over "data",
//
//	rows := local.Dim(0)
//	start := graph.Mul(b.AxisIndex("data"), b.Int(graph.S32, int64(rows)))
//	b.RandomBits(key, local, graph.PartOf([]int{n * rows, cols}, start, b.Int(graph.S32, 0)))
//
// Outside manual regions shapes are global and every device draws its part
// without being told.
func PartOf(global []int, starts ...*Value) RandomOption {
	return func(o *randomOptions) { o.global, o.starts = slices.Clone(global), slices.Clone(starts) }
}

// RandomBits draws uniformly distributed bits of type u8, u16, u32 or u64.
//
// An element depends only on the key and its row-major index in the global
// array, a 64-bit number: the generator encrypts the index (Threefry-2x32, 20
// rounds), and so the array may be of any size and is bit for bit the same for
// any sharding. The bits are those of jax.random.bits with
// jax_threefry_partitionable.
func (b *Builder) RandomBits(key Key, t Type, opts ...RandomOption) *Value {
	switch t.DType {
	case U8, U16, U32, U64:
	default:
		b.fail("random_bits", "type %v; bits have type u8, u16, u32 or u64", t)
	}
	hi, lo := b.counters(t.Shape, opts)
	k0, k1 := key.values(b)
	hi, lo = threefry(k0, k1, hi, lo)
	if t.DType == U64 {
		return Or(ShiftLeft(Convert(hi, U64), b.Int(U64, 32)), Convert(lo, U64))
	}
	x := Xor(hi, lo)
	if n := t.DType.Size(); n < 4 {
		x = Convert(And(x, b.Int(U32, 1<<(8*n)-1)), t.DType)
	}
	return x
}

// RandomBitsAt draws the part of size sizes that begins at starts of the array
// that RandomBits gives for the global shape; see PartOf.
func (b *Builder) RandomBitsAt(key Key, d DType, global []int, starts []*Value, sizes []int) *Value {
	return b.RandomBits(key, T(d, sizes...), PartOf(global, starts...))
}

// counters gives the high and low words of every element's row-major index in
// the global array.
func (b *Builder) counters(shape []int, opts []RandomOption) (hi, lo *Value) {
	o := randomOptions{global: shape}
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	if err := (Type{U32, o.global}).check(); err != nil {
		b.fail("random_bits", "global shape: %v", err)
	}
	if len(o.global) != len(shape) || o.starts != nil && len(o.starts) != len(shape) {
		b.fail("random_bits", "a part of shape [%s] with %d starts in an array of shape [%s]", joinInts(shape, ","), len(o.starts), joinInts(o.global, ","))
	}
	d := U32
	if product(o.global) > 1<<32 {
		d = U64
	}
	var index *Value
	stride := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > o.global[i] {
			b.fail("random_bits", "a part of shape [%s] in an array of shape [%s]", joinInts(shape, ","), joinInts(o.global, ","))
		}
		at := b.Iota(T(d, shape...), i)
		if o.starts != nil {
			s := o.starts[i]
			if s == nil || s.Rank() != 0 || !s.typ.DType.IsInt() {
				b.failAt(b.position(2), "random_bits", []*Value{s}, "start %d must be an integer scalar", i)
			}
			at = Add(at, Convert(s, d))
		}
		if stride > 1 {
			at = Mul(at, b.Int(d, int64(stride)))
		}
		if index == nil {
			index = at
		} else {
			index = Add(index, at)
		}
		stride *= o.global[i]
	}
	if index == nil {
		index = b.Zeros(T(d))
	}
	if d == U32 {
		return ZerosLike(index), index
	}
	low := Convert(And(index, b.Int(U64, 1<<32-1)), U32)
	return Convert(ShiftRightLogical(index, b.Int(U64, 32)), U32), low
}

// unit draws floats of type f32 or f64, equally spaced in [0, 1): the bits
// become the mantissa of a number in [1, 2), from which 1 is taken.
func (b *Builder) unit(key Key, t Type, opts []RandomOption) *Value {
	word, mantissa, one := U32, 23, int64(0x3f800000)
	if t.DType == F64 {
		word, mantissa, one = U64, 52, 0x3ff0000000000000
	}
	x := b.RandomBits(key, T(word, t.Shape...), opts...)
	x = ShiftRightLogical(x, b.Int(word, int64(8*word.Size()-mantissa)))
	x = Bitcast(Or(x, b.Int(word, one)), t.DType)
	return AddScalar(x, -1)
}

// between draws floats in [lo, hi) in the type that random floats of type t are
// made in.
func (b *Builder) between(key Key, t Type, lo, hi float64, opts []RandomOption) *Value {
	u := b.unit(key, Type{makingType(t.DType), t.Shape}, opts)
	if lo == 0 && hi == 1 {
		return u
	}
	d := u.typ.DType
	u = Add(Mul(u, b.Scalar(d, hi-lo)), b.Scalar(d, lo))
	return Min(Max(u, b.Scalar(d, lo)), b.Scalar(d, nextBelow(d, hi))) // rounding may reach hi
}

// makingType is the type in which random floats of type d are made: f32 for
// narrower ones, whose own few mantissa bits would show as a coarse grid.
func makingType(d DType) DType {
	if d == F64 {
		return F64
	}
	return F32
}

func (b *Builder) checkRandom(op string, t Type) {
	if !t.DType.IsFloat() {
		b.fail(op, "type %v; the distribution is over floats", t)
	}
}

// RandomUniform draws floats from [lo, hi), lo and hi being rounded to the type.
// With lo 0 and hi 1 and type f32 or f64 they are those of jax.random.uniform,
// multiples of 2^-23 or 2^-52; narrower types are drawn in f32 and rounded.
func (b *Builder) RandomUniform(key Key, t Type, lo, hi float64, opts ...RandomOption) *Value {
	b.checkRandom("random_uniform", t)
	lo, hi = rounded(t.DType, lo), rounded(t.DType, hi)
	if !(lo < hi) || math.IsInf(hi-lo, 0) {
		b.fail("random_uniform", "no floats of type %v in [%v, %v)", t.DType, lo, hi)
	}
	u := b.between(key, t, lo, hi, opts)
	if u.typ.DType == t.DType {
		return u
	}
	return Min(Convert(u, t.DType), b.Scalar(t.DType, nextBelow(t.DType, hi)))
}

// RandomNormal draws from the standard normal distribution, as √2·erf⁻¹(u) for u
// uniform in (-1, 1): jax.random.normal. Narrow types are drawn in f32 and
// rounded.
func (b *Builder) RandomNormal(key Key, t Type, opts ...RandomOption) *Value {
	b.checkRandom("random_normal", t)
	u := b.between(key, t, nextAbove(makingType(t.DType), -1), 1, opts)
	return Convert(MulScalar(ErfInv(u), math.Sqrt2), t.DType)
}

// RandomTruncatedNormal draws from the standard normal distribution restricted
// to (lo, hi); either bound may be infinite. Between finite bounds it is
// jax.random.truncated_normal.
func (b *Builder) RandomTruncatedNormal(key Key, t Type, lo, hi float64, opts ...RandomOption) *Value {
	b.checkRandom("random_truncated_normal", t)
	d := makingType(t.DType)
	from, to := rounded(d, math.Erf(lo/math.Sqrt2)), rounded(d, math.Erf(hi/math.Sqrt2))
	from = max(from, nextAbove(d, -1)) // erf⁻¹(-1) is -∞
	if !(from < to) {
		b.fail("random_truncated_normal", "the interval (%v, %v) holds no probability that %v can tell from none", lo, hi, d)
	}
	x := Convert(MulScalar(ErfInv(b.between(key, t, from, to, opts)), math.Sqrt2), t.DType)
	x = Max(x, b.Scalar(t.DType, nextAbove(t.DType, lo)))
	return Min(x, b.Scalar(t.DType, nextBelow(t.DType, hi)))
}

// Bernoulli draws booleans that hold with probability p, a multiple of 2^-32
// after rounding.
func (b *Builder) Bernoulli(key Key, p float64, shape []int, opts ...RandomOption) *Value {
	if !(p >= 0 && p <= 1) {
		b.fail("bernoulli", "the probability is %v; it must be between 0 and 1", p)
	}
	limit := math.Round(p * (1 << 32))
	if limit >= 1<<32 {
		return b.Full(T(Bool, shape...), 1)
	}
	return Less(b.RandomBits(key, T(U32, shape...), opts...), b.Int(U32, int64(limit)))
}

// Dropout sets elements of x to 0 with probability rate, less than 1, and
// divides the others by 1-rate.
func Dropout(x *Value, rate float64, key Key, opts ...RandomOption) *Value {
	b := x.b()
	if !(rate >= 0 && rate < 1) {
		b.failAt(b.position(1), "dropout", []*Value{x}, "the rate is %v; it must be at least 0 and less than 1", rate)
	}
	if rate == 0 {
		return x
	}
	keep := b.Bernoulli(key, 1-rate, x.typ.Shape, opts...)
	return Select(keep, MulScalar(x, 1/(1-rate)), ZerosLike(x))
}

// rounded is x in the precision of d.
func rounded(d DType, x float64) float64 {
	return dtype.Float(d, dtype.AppendFloat(nil, d, x), 0)
}

// nextBelow is the largest float of type d below x, x being rounded to d first.
// Subnormal numbers are left out: devices flush them to 0.
func nextBelow(d DType, x float64) float64 {
	if x = rounded(d, x); x == 0 {
		return -minNormal(d)
	}
	word := make([]byte, 8)
	n := copy(word, dtype.AppendFloat(nil, d, x))
	u := binary.LittleEndian.Uint64(word)
	if x < 0 {
		u++
	} else { // also +∞, and the NaN that stands for it in types without
		u--
	}
	binary.LittleEndian.PutUint64(word, u)
	y := dtype.Float(d, word[:n], 0)
	if math.Abs(y) < minNormal(d) {
		return 0
	}
	return y
}

// nextAbove is the smallest float of type d above x.
func nextAbove(d DType, x float64) float64 { return -nextBelow(d, -x) }

// minNormal is the smallest positive normal number of type d.
func minNormal(d DType) float64 {
	switch d {
	case F64:
		return 0x1p-1022
	case F32, BF16:
		return 0x1p-126
	case F8E4M3:
		return 0x1p-6
	}
	return 0x1p-14
}
