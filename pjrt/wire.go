package pjrt

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

func appendInt(b []byte, f protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), uint64(v))
}

func appendBool(b []byte, f protowire.Number, v bool) []byte {
	return appendInt(b, f, int64(protowire.EncodeBool(v)))
}

func appendMessage(b []byte, f protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, f, protowire.BytesType), v)
}

func floatBits(x float64) uint64 { return math.Float64bits(x) }
