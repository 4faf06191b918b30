package runs

import (
	"titan/metrics"
)

// Goodput says what became of the time from the run's first start to its end or to
// when it was last seen: what the attempts say of theirs, the steps that had to be
// done again after a restart, and the time between attempts. Once all steps are done
// the run is over: a start that finds nothing to do is not part of it, and one that
// begins anew is another run.
func (r *Run) Goodput() metrics.Goodput {
	var sum metrics.Goodput
	var before *Attempt
	for _, a := range r.Record.Attempts {
		if before != nil && before.Exit != nil && before.Exit.Reason == Finished {
			switch {
			case a.Figures.Steps == 0:
				continue // it found nothing to do
			case a.ResumedFrom == 0:
				sum, before = metrics.Goodput{}, nil // another run
			}
		}
		g := metrics.Goodput{}
		g.Merge(a.Figures.Goodput)
		// A process that was killed had no time to tell of its last seconds.
		g.Waste(metrics.Unaccounted, a.LastSeen.Sub(a.Start).Seconds()-g.Wall)
		g.Lose(metrics.Repeated, r.repeated(a))
		sum.Merge(g)
		if before != nil {
			sum.Waste(metrics.Idle, a.Start.Sub(before.LastSeen).Seconds())
		}
		before = a
	}
	return sum
}

// repeated is the time, in seconds, of an attempt's steps that a later one did again.
func (r *Run) repeated(a *Attempt) float64 {
	keep := r.keptUpTo(func(a *Attempt) bool { return a.Began && a.Figures.Steps > 0 })[a.Number-1]
	lost := a.Figures.LastStep - max(keep, a.Figures.FirstStep-1)
	if a.Figures.Steps == 0 || lost <= 0 {
		return 0
	}
	// Steps have their mean time: those that were lost have no other that is
	// certain to be known.
	return float64(lost) * a.Figures.All.Seconds / float64(max(a.Figures.All.Steps, 1))
}

// StepSeconds lists the times of the steps that count, in seconds and in order,
// without the first warmup steps of each attempt. Attempts before the metrics had
// them have none.
func (r *Run) StepSeconds(warmup int) []float64 {
	var out []float64
	for _, p := range r.Train {
		list := p.Lists[metrics.StepSeconds]
		first := p.Step - int64(len(list)) + 1
		for i, s := range list {
			if a := r.Record.Attempts[p.Attempt-1]; first+int64(i) > a.ResumedFrom+int64(warmup) {
				out = append(out, s)
			}
		}
	}
	return out
}
