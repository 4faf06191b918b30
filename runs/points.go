package runs

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"titan/metrics"
)

// Point is a line of metrics.jsonl.
type Point struct {
	Step    int64
	Time    time.Time
	Attempt int // from 1
	// Values are the figures by name; what was not finite is NaN. Lists are those
	// that are arrays, such as "moe/expert_tokens" and [metrics.StepSeconds],
	// the time of every step since the point before.
	Values map[string]float64
	Lists  map[string][]float64

	kind metrics.EventKind
}

const (
	longestLine  = 16 << 20
	linesToName  = 5 // damaged lines of a file that get a warning each
	attemptField = "attempt"
)

// readPoints reads the metrics; false: there is no such file.
func (o *opening) readPoints(name string) bool {
	if name == "" {
		return false
	}
	f, err := os.Open(filepath.Join(o.run.Dir, filepath.FromSlash(name)))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && len(o.run.Record.Attempts) == 0 {
			return false // nothing was written yet, or it is no run
		}
		o.warn(name, 0, "cannot be read: %v", err)
		return false
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	bad, attempt := 0, 0
	for number := 1; ; number++ {
		line, err := readLine(r)
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil && err != io.EOF {
			o.warn(name, number, "cannot be read on: %v", err)
			break
		}
		if err == io.EOF {
			o.warn(name, number, "is cut off: the run is writing it, or was killed while it did")
			break
		}
		p, perr := parsePoint(line)
		if perr != nil {
			if bad++; bad <= linesToName {
				o.warn(name, number, "is left out: %v", perr)
			}
			continue
		}
		if p.kind == metrics.StartEvent {
			attempt = o.attempt(attempt, p.Values[attemptField])
			o.starts = append(o.starts, start{attempt, p.Step, p.Time})
			continue
		}
		attempt = max(attempt, 1) // its start is damaged
		p.Attempt = attempt
		o.points = append(o.points, p)
	}
	if bad > linesToName {
		o.warn(name, 0, "%d more lines are left out", bad-linesToName)
	}
	return true
}

// attempt is the one that a start belongs to, after one of the attempt before: the
// next, or what the start says, if that can be: one begins twice where it goes back
// to an earlier checkpoint, and some come to no metrics.
func (o *opening) attempt(before int, says float64) int {
	if n := int(says); float64(n) == says && n >= max(before, 1) && n <= max(before+1, len(o.run.Record.Attempts)) {
		return n
	}
	return before + 1
}

// readLine returns a line with its end; a longer one than any that titan writes is
// cut short.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line) < longestLine {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func parsePoint(line []byte) (Point, error) {
	p := Point{Step: -1, Values: map[string]float64{}}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	if err := d.Decode(&fields); err != nil {
		return p, fmt.Errorf("it is no JSON object: %w", err)
	}
	if d.More() {
		return p, errors.New("something follows the JSON object")
	}
	for name, v := range fields {
		switch v := v.(type) {
		case float64:
			p.Values[name] = v
		case nil:
			p.Values[name] = math.NaN()
		case []any:
			list := make([]float64, len(v))
			for i, x := range v {
				if n, ok := x.(float64); ok {
					list[i] = n
				} else {
					list[i] = math.NaN()
				}
			}
			if p.Lists == nil {
				p.Lists = map[string][]float64{}
			}
			p.Lists[name] = list
		}
	}
	kind, ok := fields["kind"].(string)
	if !ok {
		return p, errors.New("it has no kind")
	}
	p.kind = metrics.EventKind(kind)
	step, ok := fields["step"].(float64)
	if !ok || step != math.Trunc(step) || step < 0 || step > 1<<53 {
		return p, fmt.Errorf("its step is %v", fields["step"])
	}
	p.Step = int64(step)
	delete(p.Values, "step")
	at, ok := fields["time"].(string)
	if !ok {
		return p, errors.New("it has no time")
	}
	var err error
	if p.Time, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return p, fmt.Errorf("its time is %q", at)
	}
	return p, nil
}

// sortPoints decides which points count. A process goes on after the step of its
// checkpoint; what earlier ones did beyond it is lost once it trains.
func (o *opening) sortPoints() {
	keep := o.run.keptUpTo(func(a *Attempt) bool {
		return slices.ContainsFunc(o.points, func(p Point) bool { return p.Attempt == a.Number && p.kind == metrics.TrainEvent })
	})
	for _, p := range o.points {
		lost := p.Step > keep[p.Attempt-1]
		switch {
		case p.kind == metrics.SummaryEvent:
			o.run.Summaries = append(o.run.Summaries, p)
		case p.kind != metrics.TrainEvent && p.kind != metrics.ValidationEvent:
			// of a later titan
		case lost:
			o.run.Superseded = append(o.run.Superseded, p)
		case p.kind == metrics.TrainEvent:
			o.run.Train = append(o.run.Train, p)
		default:
			o.run.Validation = append(o.run.Validation, p)
		}
	}
	for _, points := range []*[]Point{&o.run.Train, &o.run.Validation} {
		*points = inOrder(*points, &o.run.Superseded)
	}
}

// inOrder sorts points by step; of equal steps the last counts.
func inOrder(points []Point, others *[]Point) []Point {
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.Step, b.Step) })
	out := points[:0]
	for i, p := range points {
		if i+1 < len(points) && points[i+1].Step == p.Step {
			*others = append(*others, p)
			continue
		}
		out = append(out, p)
	}
	return out
}

// keptUpTo gives, by attempt, the last step whose result was not lost by a later
// attempt that trained.
func (r *Run) keptUpTo(trained func(*Attempt) bool) []int64 {
	keep := make([]int64, len(r.Record.Attempts))
	least := int64(math.MaxInt64)
	for i := len(keep) - 1; i >= 0; i-- {
		keep[i] = least
		if a := r.Record.Attempts[i]; trained(a) {
			least = min(least, a.ResumedFrom)
		}
	}
	return keep
}
