package hlo

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a protocol buffer message. data is nil unless the wire
// type is length-delimited.
type field struct {
	num  protowire.Number
	val  uint64
	data []byte
}

// maxDepth bounds the nesting of shapes and shardings in malformed input.
const maxDepth = 64

var errDepth = errors.New("nested too deeply")

// walk calls f for each field of the message b.
func walk(b []byte, f func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		x := field{num: num}
		switch typ {
		case protowire.VarintType:
			x.val, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			x.val, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			x.val = uint64(v)
		case protowire.BytesType:
			x.data, n = protowire.ConsumeBytes(b)
			if x.data == nil {
				x.data = []byte{}
			}
		default: // groups are not used
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(x); err != nil {
			return fmt.Errorf("field %d: %w", num, err)
		}
	}
	return nil
}

// ints appends a repeated integer field, packed or not.
func (x field) ints(to []int64) ([]int64, error) {
	if x.data == nil {
		return append(to, int64(x.val)), nil
	}
	to = slices.Grow(to, len(x.data)) // at least a byte each
	for b := x.data; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		to, b = append(to, int64(v)), b[n:]
	}
	return slices.Clip(to), nil
}

func (x field) int() int      { return int(int64(x.val)) }
func (x field) bool() bool    { return x.val != 0 }
func (x field) str() string   { return string(x.data) }
func (x field) bytes() []byte { return slices.Clone(x.data) }

// mapEntry decodes an entry of a map with string keys and values.
func (x field) mapEntry(m map[string]string) error {
	var k, v string
	err := walk(x.data, func(e field) error {
		switch e.num {
		case 1:
			k = e.str()
		case 2:
			v = e.str()
		}
		return nil
	})
	m[k] = v
	return err
}
