package chart

import (
	"math"

	"titan/internal/human"
)

// Axis is a direction of a chart.
type Axis struct {
	Label string
	Log   bool                   // by powers; what is not positive is not shown
	Ticks []float64              // where to write values; nil: at round ones
	Write func(x float64) string // how; nil: human.Short
	// Min and Max are the ends; where both are 0 those of the data.
	Min, Max float64
	// Zero makes an axis begin at 0; Binary has ticks at powers of two apart, as sizes
	// in bytes have.
	Zero, Binary bool
}

func (a Axis) write(x float64) string {
	if a.Write != nil {
		return a.Write(x)
	}
	return human.Short(x)
}

// tick is a value as an axis has it.
func (a Axis) tick(x float64) string { return human.Trim(a.write(x)) }

// scale places values between two ends.
type scale struct {
	axis     Axis
	low      float64
	high     float64
	from, to float64 // where low and high are drawn
}

// step is the distance of about n ticks.
func (s scale) step(n int) float64 {
	d := (s.high - s.low) / float64(max(n, 1))
	if s.axis.Binary && d > 0 {
		return math.Exp2(math.Ceil(math.Log2(d)))
	}
	return niceStep(d)
}

// newScale covers values; it never has an empty range.
func newScale(a Axis, values []float64, from, to float64) scale {
	s := scale{axis: a, low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, v := range values {
		if finite(v) && (!a.Log || v > 0) {
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
	if a.Min != 0 || a.Max != 0 {
		s.low, s.high = a.Min, a.Max
	}
	if s.low > s.high {
		s.low, s.high = 0, 1
		if a.Log {
			s.low, s.high = 1, 10
		}
	}
	if a.Zero && !a.Log {
		s.low, s.high = min(s.low, 0), max(s.high, 0)
	}
	if s.high-s.low < 1e-12*max(math.Abs(s.high), math.Abs(s.low)) || s.high == s.low {
		switch {
		case a.Log:
			s.low, s.high = s.low/2, s.high*2
		case s.low == 0:
			s.high = 1
		default:
			d := math.Abs(s.low) / 10
			s.low, s.high = s.low-d, s.high+d
		}
	}
	return s
}

// round widens the ends to the ticks around them.
func (s scale) round(n int) scale {
	if s.axis.Log {
		return s
	}
	step := s.step(n)
	s.low, s.high = math.Floor(s.low/step+1e-9)*step, math.Ceil(s.high/step-1e-9)*step
	return s
}

// at is where a value is drawn.
func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.axis.Log {
		if v <= 0 {
			return math.NaN()
		}
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// ticks returns about n values to write.
func (s scale) ticks(n int) []float64 {
	if len(s.axis.Ticks) > 0 {
		return s.axis.Ticks
	}
	var out []float64
	if s.axis.Log {
		decades := math.Log10(s.high / s.low)
		for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
			for _, m := range logSteps(decades) {
				if v := m * math.Pow(10, e); v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
					out = append(out, v)
				}
			}
		}
		return out
	}
	step := s.step(n)
	for k := math.Ceil(s.low/step - 1e-9); k*step <= s.high+1e-9*step && len(out) < 50; k++ {
		v := k * step
		if math.Abs(v) < 1e-9*step {
			v = 0
		}
		out = append(out, v)
	}
	return out
}

func logSteps(decades float64) []float64 {
	switch {
	case decades > 3:
		return []float64{1}
	case decades > 1:
		return []float64{1, 2, 5}
	}
	return []float64{1, 1.5, 2, 3, 4, 5, 6, 8}
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below x.
func niceStep(x float64) float64 {
	if !(x > 0) || !finite(x) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= x*(1-1e-9) {
			return m * p
		}
	}
	return 10 * p
}
