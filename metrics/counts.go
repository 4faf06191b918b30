package metrics

import (
	"encoding/json"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Counts is how often each of the numbers 0…len(N)-1 came, such as how many tokens
// went to each expert. JSON lines have it as an array, TensorBoard as a histogram.
type Counts struct {
	Name string
	N    []float64
}

// Field numbers of TensorBoard's HistogramProto, and of it in a Summary's value.
const (
	valueHisto  = 5
	histoMin    = 1 // double; then the largest, number, sum and sum of squares
	histoLimit  = 6 // packed double: where buckets end
	histoBucket = 7 // packed double
)

// histogram spells c as a HistogramProto whose buckets are the numbers, each from
// itself to the next.
func (c Counts) histogram() []byte {
	var num, sum, squares float64
	var limits, buckets []byte
	for i, n := range c.N {
		if !finite(n) {
			n = 0
		}
		x := float64(i)
		num, sum, squares = num+n, sum+n*x, squares+n*x*x
		limits = protowire.AppendFixed64(limits, math.Float64bits(x+1))
		buckets = protowire.AppendFixed64(buckets, math.Float64bits(n))
	}
	var b []byte
	for i, v := range []float64{0, float64(len(c.N)), num, sum, squares} {
		b = protowire.AppendTag(b, histoMin+protowire.Number(i), protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(v))
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, histoLimit, protowire.BytesType), limits)
	return protowire.AppendBytes(protowire.AppendTag(b, histoBucket, protowire.BytesType), buckets)
}

// jsonArray spells figures; null stands for one that is not finite.
func jsonArray(values []float64) []byte {
	out := make([]any, len(values))
	for i, n := range values {
		if finite(n) {
			out[i] = n
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return []byte("null") // finite numbers always encode
	}
	return b
}
