package sweep

import "slices"

// rate sets the efficiency of all points: tokens a second of a device by those of
// the smallest point with the same values. In weak mode that is its step time by
// that of the point, in strong mode the speed-up by that of the devices.
func (s *Sweep) rate() {
	for i := range s.Points {
		p := &s.Points[i]
		p.Efficiency, p.Baseline = 0, ""
		if s.Mode == NoMode || p.Status != OK || p.TPSDevice <= 0 {
			continue
		}
		if b := s.baseline(p.Values); b != nil {
			p.Efficiency, p.Baseline = p.TPSDevice/b.TPSDevice, b.ID
		}
	}
}

// baseline returns the smallest point with these values that was tried.
func (s *Sweep) baseline(values []Value) *Point {
	var least *Point
	for i := range s.Points {
		p := &s.Points[i]
		if p.Status != OK || p.Source == Extrapolated || p.TPSDevice <= 0 || !slices.Equal(p.Values, values) {
			continue
		}
		if least == nil || p.Size() < least.Size() {
			least = p
		}
	}
	return least
}
