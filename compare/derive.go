package compare

import (
	"fmt"
	"math"

	"titan/internal/human"
)

// derive adds the figures that depend on what results are compared with.
func (c *Comparison) derive(values []map[string]float64, o Options) {
	n, tokens, seconds := c.equal(func(i int) bool { return !c.Spoiled(i, Loss) })
	if n < 2 { // all are marked: their losses are worth seeing
		n, tokens, seconds = c.equal(func(int) bool { return true })
	}
	for i, r := range c.Results {
		if len(r.Curve) == 0 {
			continue
		}
		put := func(key string, v float64, ok bool) {
			if ok {
				values[i][key] = v
			}
		}
		if n > 1 {
			loss, ok := meanLoss(r.Curve, func(p Point) float64 { return p.Tokens }, tokens)
			put(LossTokens, loss, ok)
			loss, ok = lastLoss(r.Validation, tokens)
			put(ValTokens, loss, ok)
			loss, ok = meanLoss(r.Curve, func(p Point) float64 { return p.Seconds }, seconds)
			put(LossTime, loss, ok)
		}
		if o.TargetLoss > 0 {
			if p, ok := reached(r, o.TargetLoss); ok {
				put(TargetTokens, p.Tokens, finite(p.Tokens))
				put(TargetTime, p.Seconds, true)
				if r.Price > 0 {
					put(TargetCost, r.Price*float64(r.Chips)*p.Seconds/3600, true)
				}
			} else {
				c.Notes = append(c.Notes, fmt.Sprintf("%s has not reached a loss of %g", r.Name, o.TargetLoss))
			}
		}
	}
	if n > 1 {
		c.Notes = append(c.Notes, fmt.Sprintf("equal tokens are %s, equal time is %s: what the shortest run has; losses there are means of the logged ones in the last 5%%", human.Count(tokens), human.Seconds(seconds)))
	}
	if o.TargetLoss > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("the target is a loss of %g: of validation where a run validates, else the mean of three logged training losses", o.TargetLoss))
	}
	for _, r := range c.Results {
		if r.Price > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("%s costs %g %s a chip and hour", r.Name, r.Price, r.Currency))
		}
	}
}

// equal returns how many results have curves, and how far the shortest goes in
// tokens and in seconds.
func (c *Comparison) equal(counts func(i int) bool) (n int, tokens, seconds float64) {
	tokens, seconds = math.Inf(1), math.Inf(1)
	for i, r := range c.Results {
		if len(r.Curve) == 0 || !counts(i) {
			continue
		}
		if last := r.Curve[len(r.Curve)-1]; finite(last.Tokens) && finite(last.Seconds) {
			tokens, seconds = min(tokens, last.Tokens), min(seconds, last.Seconds)
			n++
		}
	}
	return n, tokens, seconds
}

// meanLoss is the mean of the logged losses in the last 5% before at, or the last
// one. A run that has not come so far has none.
func meanLoss(curve []Point, of func(Point) float64, at float64) (float64, bool) {
	sum, n := 0.0, 0
	last, found, reached := 0.0, false, false
	for _, p := range curve {
		x := of(p)
		if !finite(x) || !finite(p.Loss) {
			continue
		}
		if x > at*(1+1e-9) {
			reached = true
			break
		}
		reached = reached || x >= at*(1-1e-9)
		last, found = p.Loss, true
		if x > 0.95*at {
			sum += p.Loss
			n++
		}
	}
	switch {
	case !reached || !found:
		return 0, false
	case n == 0:
		return last, true
	}
	return sum / float64(n), true
}

// lastLoss is the last loss by tokens.
func lastLoss(points []Point, tokens float64) (float64, bool) {
	loss, ok := 0.0, false
	for _, p := range points {
		if finite(p.Loss) && p.Tokens <= tokens*(1+1e-9) {
			loss, ok = p.Loss, true
		}
	}
	return loss, ok
}

// reached is where a run first has a loss.
func reached(r *Result, target float64) (Point, bool) {
	if len(r.Validation) > 0 {
		for _, p := range r.Validation {
			if p.Loss <= target {
				return p, true
			}
		}
		return Point{}, false
	}
	const window = 3
	for i := range r.Curve {
		if i+1 < window {
			continue
		}
		sum := 0.0
		for _, p := range r.Curve[i+1-window : i+1] {
			sum += p.Loss
		}
		if sum/window <= target {
			return r.Curve[i], true
		}
	}
	return Point{}, false
}
