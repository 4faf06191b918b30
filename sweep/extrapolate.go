package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"titan/mesh"
	"titan/parallel"
	"titan/plan"
)

// markExtrapolated says of which points that are not done the figures will be
// computed from smaller ones.
func (s *Sweep) markExtrapolated() {
	for i := range s.Points {
		p := &s.Points[i]
		if p.Status == Pending && s.Source == Plan && s.MaxCompileChips > 0 && p.Chips > s.MaxCompileChips {
			p.Source = Extrapolated
		}
	}
}

const notExtrapolated = "; not extrapolated: "

// extrapolate computes the points that are not compiled.
func (s *Sweep) extrapolate() {
	for i := range s.Points {
		p := &s.Points[i]
		if s.Extrapolate && p.Source == Plan && p.Failure == TimedOut {
			p.Source = Extrapolated
		}
		if p.Source != Extrapolated || p.Status == Impossible {
			continue
		}
		if p.Failure != TimedOut {
			p.Failure, p.Error = NotFailed, ""
		}
		p.From = nil
		p.Error, _, _ = strings.Cut(p.Error, notExtrapolated) // of an earlier attempt
		if err := s.extrapolateOne(p); err != nil {
			p.Status, p.Rule, p.Error = Failed, "", strings.TrimPrefix(p.Error+notExtrapolated, "; ")+err.Error()
			if p.Failure == NotFailed {
				p.Failure = Crashed
			}
		}
	}
}

func (s *Sweep) extrapolateOne(p *Point) error {
	var known []*Point // of the same values, compiled, smaller; ascending
	for i := range s.Points {
		q := &s.Points[i]
		if q.Status == OK && q.Source == Plan && q.Size() < p.Size() && slices.Equal(q.Values, p.Values) && q.Exposed != nil {
			known = append(known, q)
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("there is no smaller point that was compiled")
	}
	slices.SortStableFunc(known, func(a, b *Point) int { return a.Size() - b.Size() })
	for k := len(known) - 1; k >= 0; k-- {
		if sameCopy(known[k], p) {
			return s.moreCopies(known[k], p)
		}
	}
	return byTrend(known, p)
}

// sameCopy says whether a device of both points does the same, but for adding up
// gradients over more copies.
func sameCopy(a, b *Point) bool {
	ta, errA := mesh.ParseTopology(a.Topology)
	tb, errB := mesh.ParseTopology(b.Topology)
	return errA == nil && errB == nil && ta.SliceName() == tb.SliceName() && a.LocalBatch == b.LocalBatch && a.Passes == b.Passes &&
		slices.Equal(withoutCopies(a.Mesh), withoutCopies(b.Mesh))
}

func withoutCopies(axes []Axis) []Axis {
	return slices.DeleteFunc(slices.Clone(axes), func(a Axis) bool { return a.Name == parallel.AxisReplicate })
}

// moreCopies takes the step of a compiled point and adds what adding up gradients
// over the larger number of copies takes longer, by the model of links, as if
// nothing were computed meanwhile. A device adds up 4 bytes for each of its
// parameters, once a step.
func (s *Sweep) moreCopies(from, p *Point) error {
	before, err := s.copiesSeconds(from)
	if err != nil {
		return err
	}
	after, err := s.copiesSeconds(p)
	if err != nil {
		return err
	}
	more := max(0, after-before)
	p.takeOver(from, 1, *from.Exposed+more)
	p.LowSeconds = from.LowSeconds // the compiler may hide all of it
	p.Memory, p.Limit = from.Memory, from.Limit
	p.Rule = fmt.Sprintf("a device does what it does in %s; adding up gradients over more copies takes %.3g ms longer by the model of links, none of it hidden", from.ID, 1e3*more)
	p.From = []string{from.ID}
	return nil
}

// copiesSeconds is how long adding up gradients over the copies takes.
func (s *Sweep) copiesSeconds(p *Point) (float64, error) {
	r, err := loadPoint(s.Recipe, s.Set, s.Source, s.Steps, *p)
	if err != nil {
		return 0, err
	}
	m, err := r.Machine()
	if err != nil {
		return 0, err
	}
	const gradientBytes = 4
	copies := max(1, m.AxisSize(parallel.AxisReplicate))
	return plan.AllReduce(s.Kind, m, parallel.AxisReplicate, gradientBytes*float64(p.Parameters)*float64(copies)/float64(m.Size()))
}

// byTrend takes the computation of the largest compiled point, by the tokens of a
// device, and the exposed communication of all by a line through them over the
// logarithm of the chips, not below that of the largest.
func byTrend(known []*Point, p *Point) error {
	last := known[len(known)-1]
	work := (float64(p.Tokens) / float64(p.Devices)) / (float64(last.Tokens) / float64(last.Devices))
	exposed := *last.Exposed
	how := "exposed communication is that of the only compiled point"
	if len(known) > 1 {
		a, b := line(known)
		exposed = max(exposed, a+b*math.Log2(float64(p.Size())))
		how = fmt.Sprintf("exposed communication follows %.3g s %+.3g s for each doubling of the chips, the line through %d compiled points, and is not below that of %s", a, b, len(known), last.ID)
	}
	p.takeOver(last, work, exposed)
	p.HighSeconds += max(0, exposed-*last.Exposed) // the line may be wrong by as much as it adds
	p.Rule = fmt.Sprintf("computation is %.4g times that of %s, as a device's tokens are; %s", work, last.ID, how)
	for _, q := range known {
		p.From = append(p.From, q.ID)
	}
	if a, b := slicesOf(p.Topology), slicesOf(last.Topology); a > b {
		p.Rule += fmt.Sprintf("; traffic between %d slices is in none of them", a)
	}
	return nil
}

func slicesOf(topology string) int {
	t, err := mesh.ParseTopology(topology)
	if err != nil {
		return 0
	}
	return t.Slices
}

func chipsOf(topology string) int {
	t, err := mesh.ParseTopology(topology)
	if err != nil {
		return 0
	}
	return t.Chips()
}

// line returns the least-squares line of exposed communication, in seconds, over
// the base-2 logarithm of the chips.
func line(points []*Point) (a, b float64) {
	n := float64(len(points))
	var sx, sy, sxx, sxy float64
	for _, p := range points {
		x, y := math.Log2(float64(p.Size())), *p.Exposed
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d > 0 { // else all are of one size
		b = (n*sxy - sx*sy) / d
	}
	return (sy - b*sx) / n, b
}

// takeOver fills in the figures of a point from a compiled one, with so many times
// its computation and this exposed communication.
func (p *Point) takeOver(from *Point, work, exposed float64) {
	compute := from.StepSeconds - *from.Exposed
	p.Status = OK
	p.StepSeconds = compute*work + exposed
	p.LowSeconds = from.LowSeconds / from.StepSeconds * p.StepSeconds
	p.HighSeconds = from.HighSeconds / from.StepSeconds * p.StepSeconds
	p.Exposed = &exposed
	p.Breakdown = map[string]float64{}
	for part, seconds := range from.Breakdown {
		p.Breakdown[part] = seconds * work
	}
	p.Breakdown[plan.Communication.String()] = exposed
	p.TPS = float64(p.Tokens) / p.StepSeconds
	p.TPSDevice = p.TPS / float64(p.Devices)
	p.TPSChip = p.TPS / float64(p.Chips)
	if from.MFU != nil {
		by := p.TPSDevice / from.TPSDevice
		p.MFU = &plan.ByConvention{Causal: from.MFU.Causal * by, Full: from.MFU.Full * by}
	}
	p.Bottleneck, p.Versions = from.Bottleneck, from.Versions
}
