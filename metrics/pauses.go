package metrics

import "time"

// Kind says what time was spent on.
type Kind string

const (
	Compile    Kind = "compile"
	Initialise Kind = "initialise" // making parameters from the seed
	Restore    Kind = "restore"    // reading a checkpoint, or weights
	Checkpoint Kind = "checkpoint"
	Validate   Kind = "validation"
	Profile    Kind = "profile" // writing a trace
)

// Further kinds of time that is not productive, see [Goodput].
const (
	Startup     Kind = "startup"     // opening and checking, before the first step
	Recompile   Kind = "recompile"   // compiling after it
	Input       Kind = "input"       // the devices waited for a batch
	SkippedStep Kind = "skipped"     // steps that changed nothing
	Repeated    Kind = "repeated"    // steps that were done again after a restart
	Idle        Kind = "idle"        // between two processes
	Unaccounted Kind = "unaccounted" // no kind says what it was
)

// pauses keeps the times without training: for the summary by kind, for windows
// as intervals.
type pauses struct {
	now   func() time.Time
	spent map[Kind]time.Duration
	open  []*pause
	ended [][2]time.Time // in order, apart, and not before the last drop
	count map[Kind]int   // how often each kind began
	begun bool           // training has: what is compiled now is compiled again
	setup time.Duration  // spent before
}

type pause struct {
	kind  Kind
	since time.Time // the time before it is accounted for
	start time.Time
}

func (p *pauses) begin(k Kind) (end func()) {
	now := p.now()
	if n := len(p.open); n > 0 {
		p.account(p.open[n-1], now)
	}
	if k == Compile && p.begun {
		k = Recompile
	}
	p.count[k]++
	mine := &pause{kind: k, since: now, start: now}
	p.open = append(p.open, mine)
	return func() { p.end(mine) }
}

func (p *pauses) account(o *pause, now time.Time) {
	p.spent[o.kind] += now.Sub(o.since)
	o.since = now
}

// end closes a pause and those that were opened within it.
func (p *pauses) end(mine *pause) {
	at := -1
	for i, o := range p.open {
		if o == mine {
			at = i
		}
	}
	if at < 0 {
		return
	}
	now := p.now()
	p.account(p.open[len(p.open)-1], now)
	p.open = p.open[:at]
	if at > 0 {
		p.open[at-1].since = now
		return
	}
	p.ended = append(p.ended, [2]time.Time{mine.start, now})
}

// within returns how much of the time from a to b was paused.
func (p *pauses) within(a, b time.Time) time.Duration {
	var sum time.Duration
	add := func(from, to time.Time) {
		if from.Before(a) {
			from = a
		}
		if to.After(b) {
			to = b
		}
		if to.After(from) {
			sum += to.Sub(from)
		}
	}
	for _, e := range p.ended {
		add(e[0], e[1])
	}
	if len(p.open) > 0 {
		add(p.open[0].start, b)
	}
	return sum
}

// drop forgets the intervals that end before t.
func (p *pauses) drop(t time.Time) {
	n := 0
	for n < len(p.ended) && !p.ended[n][1].After(t) {
		n++
	}
	p.ended = p.ended[n:]
}

// total returns the time of each kind, open pauses included.
func (p *pauses) total() map[Kind]time.Duration {
	if n := len(p.open); n > 0 {
		p.account(p.open[n-1], p.now())
	}
	return p.spent
}

// sum returns the time of all kinds together, open pauses included.
func (p *pauses) sum() (sum time.Duration) {
	for _, d := range p.total() {
		sum += d
	}
	return sum
}
