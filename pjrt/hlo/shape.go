package hlo

import (
	"fmt"
	"strconv"
	"strings"

	"titan/dtype"
)

// Type is an element type of XLA (PrimitiveType).
type Type int

// Types that are no element types of arrays.
const (
	Tuple  Type = 13
	Opaque Type = 14
	Token  Type = 17
)

type typeInfo struct {
	name  string
	dtype dtype.DType
	bits  int
}

var typeInfos = map[Type]typeInfo{
	1: {"pred", dtype.Bool, 8}, 2: {"s8", dtype.S8, 8}, 3: {"s16", dtype.S16, 16}, 4: {"s32", dtype.S32, 32}, 5: {"s64", dtype.S64, 64},
	6: {"u8", dtype.U8, 8}, 7: {"u16", dtype.U16, 16}, 8: {"u32", dtype.U32, 32}, 9: {"u64", dtype.U64, 64},
	10: {"f16", dtype.F16, 16}, 11: {"f32", dtype.F32, 32}, 12: {"f64", dtype.F64, 64}, 16: {"bf16", dtype.BF16, 16},
	15: {"c64", 0, 64}, 18: {"c128", 0, 128},
	19: {"f8e5m2", dtype.F8E5M2, 8}, 20: {"f8e4m3fn", dtype.F8E4M3, 8}, 23: {"f8e4m3b11fnuz", 0, 8}, 24: {"f8e5m2fnuz", 0, 8},
	25: {"f8e4m3fnuz", 0, 8}, 28: {"f8e4m3", 0, 8}, 29: {"f8e3m4", 0, 8}, 32: {"f4e2m1fn", 0, 4}, 33: {"f8e8m0fnu", 0, 8},
	21: {"s4", 0, 4}, 22: {"u4", 0, 4}, 26: {"s2", 0, 2}, 27: {"u2", 0, 2}, 30: {"s1", 0, 1}, 31: {"u1", 0, 1},
	Tuple: {"tuple", 0, 0}, Opaque: {"opaque", 0, 0}, Token: {"token", 0, 0},
}

// String returns XLA's name, such as "f32" or "token".
func (t Type) String() string {
	if i, ok := typeInfos[t]; ok {
		return i.name
	}
	return fmt.Sprintf("type%d", int(t))
}

// DType returns the element type in this module's vocabulary, Invalid where it
// has none.
func (t Type) DType() dtype.DType { return typeInfos[t].dtype }

// Shape is the type of a value: an array, or a tuple of shapes.
type Shape struct {
	Type         Type
	Dims         []int
	Elements     []Shape // of a tuple
	MinorToMajor []int   // the layout; empty for scalars
	Tiles        [][]int
	// MemorySpace is 0 for the device's main memory. On TPU 1 is the vector
	// memory, 5 the host's memory, 6 the scalar memory.
	MemorySpace int
}

// Leaves calls f for s, or for its array elements if it is a tuple.
func (s Shape) Leaves(f func(Shape)) {
	if s.Type != Tuple {
		f(s)
		return
	}
	for _, e := range s.Elements {
		e.Leaves(f)
	}
}

// Bytes returns the dense size of the arrays in s, without padding to tiles.
func (s Shape) Bytes() int64 {
	total := int64(0)
	s.Leaves(func(a Shape) {
		n := int64(typeInfos[a.Type].bits)
		for _, d := range a.Dims {
			n *= int64(d)
		}
		total += (n + 7) / 8
	})
	return total
}

// String returns XLA's notation: "f32[8,32]{1,0}", "(f32[], s32[2]{0})".
func (s Shape) String() string {
	var b strings.Builder
	s.print(&b, true)
	return b.String()
}

// Short is String without layouts.
func (s Shape) Short() string {
	var b strings.Builder
	s.print(&b, false)
	return b.String()
}

func (s Shape) print(b *strings.Builder, layout bool) {
	if s.Type == Tuple {
		b.WriteByte('(')
		for i, e := range s.Elements {
			if i > 0 {
				b.WriteString(", ")
			}
			e.print(b, layout)
		}
		b.WriteByte(')')
		return
	}
	b.WriteString(s.Type.String())
	b.WriteByte('[')
	b.WriteString(joinInts(s.Dims))
	b.WriteByte(']')
	if !layout || len(s.MinorToMajor)+len(s.Tiles)+s.MemorySpace == 0 {
		return
	}
	b.WriteByte('{')
	b.WriteString(joinInts(s.MinorToMajor))
	if len(s.Tiles)+s.MemorySpace > 0 {
		b.WriteByte(':')
	}
	if len(s.Tiles) > 0 {
		b.WriteByte('T')
		for _, t := range s.Tiles {
			b.WriteString("(" + joinTile(t) + ")")
		}
	}
	if s.MemorySpace != 0 {
		fmt.Fprintf(b, "S(%d)", s.MemorySpace)
	}
	b.WriteByte('}')
}

func joinInts(xs []int) string {
	s := make([]string, len(xs))
	for i, x := range xs {
		s[i] = strconv.Itoa(x)
	}
	return strings.Join(s, ",")
}

// joinTile prints a tile; XLA writes a dimension that is merged into the next
// one (the smallest integer) as a star.
func joinTile(xs []int) string {
	s := make([]string, len(xs))
	for i, x := range xs {
		if s[i] = strconv.Itoa(x); x < 0 {
			s[i] = "*"
		}
	}
	return strings.Join(s, ",")
}

func parseShape(b []byte, depth int) (Shape, error) {
	var s Shape
	if depth > maxDepth {
		return s, errDepth
	}
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 2:
			s.Type = Type(x.val)
		case 3:
			s.Dims, err = appendInts(s.Dims, x)
		case 4:
			var e Shape
			if e, err = parseShape(x.data, depth+1); err == nil {
				s.Elements = append(s.Elements, e)
			}
		case 5:
			err = s.parseLayout(x.data)
		}
		return err
	})
	return s, err
}

func (s *Shape) parseLayout(b []byte) error {
	return walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			s.MinorToMajor, err = appendInts(s.MinorToMajor, x)
		case 6:
			tile := []int{}
			err = walk(x.data, func(y field) (err error) {
				if y.num == 1 {
					tile, err = appendInts(tile, y)
				}
				return err
			})
			s.Tiles = append(s.Tiles, tile)
		case 8:
			s.MemorySpace = x.int()
		}
		return err
	})
}

func appendInts(to []int, x field) ([]int, error) {
	vs, err := x.ints(nil)
	for _, v := range vs {
		to = append(to, int(v))
	}
	return to, err
}
