package plan

import "math"

// Timeline is what a device does over one execution of a block of the program, in
// outline: the whole step, or one turn of a loop. Times are in seconds, from its
// beginning.
type Timeline struct {
	Seconds float64 `json:"seconds"`
	// Compute is the compute unit, without gaps; Links what the connections to other
	// devices do meanwhile.
	Compute []Stretch `json:"compute"`
	Links   []Stretch `json:"links,omitempty"`
}

// Stretch is a time in which a device does one sort of work.
type Stretch struct {
	Part    string  `json:"part"` // as in Prediction.Parts; of links the kind of the collective; "loop"
	Start   float64 `json:"start"`
	Seconds float64 `json:"seconds"`
	// Turns is how often a loop turns; Inside is one turn.
	Turns  float64   `json:"turns,omitempty"`
	Inside *Timeline `json:"inside,omitempty"`
}

// loopPart is the Part of a loop.
const loopPart = "loop"

// note adds work of the compute unit that ends now.
func (b *block) note(p Part, seconds float64) {
	if seconds > 0 {
		b.line.Compute = join(b.line.Compute, Stretch{Part: p.String(), Start: b.now - seconds, Seconds: seconds})
	}
}

// link adds work of the links.
func (b *block) link(kind string, start, seconds float64) {
	b.line.Links = join(b.line.Links, Stretch{Part: kind, Start: start, Seconds: seconds})
}

// join adds a stretch, as more of the last one if that is the same and ends there.
func join(to []Stretch, s Stretch) []Stretch {
	if n := len(to); n > 0 && s.Inside == nil && to[n-1].Inside == nil && to[n-1].Part == s.Part &&
		math.Abs(to[n-1].Start+to[n-1].Seconds-s.Start) <= 1e-9*(s.Start+s.Seconds) {
		to[n-1].Seconds = s.Start + s.Seconds - to[n-1].Start
		return to
	}
	return append(to, s)
}

// looped adds the turns of a loop that begins now, of which one was walked last.
func (b *block) looped(inside *Timeline, turns float64) {
	if inside != nil && inside.Seconds > 0 {
		b.line.Compute = append(b.line.Compute, Stretch{Part: loopPart, Start: b.now, Seconds: turns * inside.Seconds, Turns: turns, Inside: inside})
	}
}

// called adds a block that is executed once from now on.
func (b *block) called(inside *Timeline) {
	if inside == nil {
		return
	}
	for _, s := range inside.Compute {
		s.Start += b.now
		b.line.Compute = join(b.line.Compute, s)
	}
	for _, s := range inside.Links {
		s.Start += b.now
		b.line.Links = join(b.line.Links, s)
	}
}

// Stretches that a timeline keeps: more cannot be told apart in a drawing.
const (
	maxStretches = 160
	maxNesting   = 3
)

// outline leaves out what is too short to be seen.
func (t *Timeline) outline(depth int) {
	t.Compute = coarse(t.Compute, t.Seconds)
	t.Links = coarse(t.Links, t.Seconds)
	for i := range t.Compute {
		in := t.Compute[i].Inside
		switch {
		case in == nil:
		case depth >= maxNesting || t.Compute[i].Seconds < t.Seconds/100:
			t.Compute[i].Inside = nil
		default:
			in.outline(depth + 1)
		}
	}
}

// coarse joins short neighbours to what most of their time is, until few enough are
// left.
func coarse(all []Stretch, seconds float64) []Stretch {
	for least := seconds / 1000; len(all) > maxStretches && least < seconds; least *= 2 {
		var out []Stretch
		for i := 0; i < len(all); {
			j, end := i, all[i].Start
			by := map[string]float64{}
			for ; j < len(all) && all[j].Inside == nil && all[j].Seconds < least && all[j].Start-end <= least/4 && all[j].Start+all[j].Seconds-all[i].Start < 4*least; j++ {
				by[all[j].Part] += all[j].Seconds
				end = all[j].Start + all[j].Seconds
			}
			if j <= i+1 {
				out = join(out, all[i])
				i++
				continue
			}
			s := Stretch{Start: all[i].Start, Seconds: end - all[i].Start}
			for _, x := range all[i:j] { // in order: maps have none
				if s.Part == "" || by[x.Part] > by[s.Part] {
					s.Part = x.Part
				}
			}
			out = join(out, s)
			i = j
		}
		all = out
	}
	return all
}
