package train

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"titan/checkpoint/storage"
	"titan/configs"
	"titan/internal/chrometrace"
	"titan/metrics"
	"titan/pjrt"
	"titan/pjrt/xspace"
)

// Tracks of the timeline that the trainer itself writes.
const (
	hostProcess    = "host"
	trainerTrack   = "trainer"
	deviceProcess  = "devices"
	programTrack   = "program"
	timelineFile   = "timeline.json"
	tensorBoardDir = "plugins/profile" // where TensorBoard's profile plugin looks, in its log folder
)

// profiler traces some steps of a run: what the trainer does, and what the plugin says
// of its devices.
type profiler struct {
	c     configs.Profiling
	dir   string             // of the traces
	trace *chrometrace.Trace // nil: nothing is traced now
	began time.Time
	busy  time.Time      // until when the devices were at the step before
	plug  *pjrt.Profiler // nil: none, or not now
	told  bool           // that the plugin has none
}

// traced tells whether step s is: the last Active of every Freq steps are.
func (p *profiler) traced(s int64) bool {
	return p.c.Enable && (s-1)%int64(p.c.Freq) >= int64(p.c.Freq-p.c.Active)
}

// span traces what the trainer does until end is called.
func (t *trainer) span(name string, step int64) (end func()) {
	return t.profile.trace.Span(hostProcess, trainerTrack, name, map[string]any{"step": step})
}

// profileBefore begins a trace if one begins with step s.
func (t *trainer) profileBefore(s int64) {
	p := &t.profile
	if p.trace != nil || !p.traced(s) {
		return
	}
	p.trace, p.began = chrometrace.New(), time.Now()
	plug, err := t.machine.Client.Plugin().NewProfiler()
	if err == nil {
		if err = plug.Start(); err != nil {
			_ = plug.Close()
		}
	}
	switch {
	case err == nil:
		p.plug = plug
	case !p.told && pjrt.IsUnimplemented(err):
		t.logf("note: the plugin has no profiler: the timeline has the trainer and whole programs, but no operations of the devices")
	case !p.told:
		t.warnf("the devices are not traced: %v", err)
	}
	p.told = true
}

// profileDue tells whether a trace ends with step s.
func (t *trainer) profileDue(s int64) bool {
	return t.profile.trace != nil && (s == t.lastStep() || !t.profile.traced(s+1) || s%int64(t.profile.c.Freq) == 0)
}

// profileAfter ends the trace, if one ends with step s, and writes it. That it cannot
// be written does not end the run.
func (t *trainer) profileAfter(s int64) {
	if !t.profileDue(s) {
		return
	}
	defer t.meter.Pause(metrics.Profile)()
	p := &t.profile
	trace, plug := p.trace, p.plug
	p.trace, p.plug = nil, nil
	name := fmt.Sprintf("step-%08d", s)
	var raw []byte
	if plug != nil {
		var err error
		if raw, err = plug.Stop(); err != nil {
			t.warnf("what the plugin traced is lost: %v", err)
		} else if planes, err := xspace.Parse(raw); err != nil {
			t.warnf("what the plugin traced is not in %s: %v", timelineFile, err)
		} else {
			trace.Add(deviceEvents(planes)...)
		}
		_ = plug.Close()
	}
	path, err := p.write(name, trace, raw)
	if err != nil {
		t.warnf("the trace of step %d is not written: %v; training goes on", s, err)
		return
	}
	t.logf("traced %s", path)
	for _, line := range spent(trace.Events()) {
		t.logf("  %s", line)
	}
}

// deviceEvents are the events of a plugin's trace, as a timeline has them.
func deviceEvents(planes []xspace.Plane) []chrometrace.Event {
	var out []chrometrace.Event
	for _, plane := range planes {
		for _, line := range plane.Lines {
			for _, e := range line.Events {
				out = append(out, chrometrace.Event{Process: plane.Name, Track: line.Name, Name: e.Name, Start: line.Start.Add(e.Start), Length: e.Length})
			}
		}
	}
	return out
}

// write writes a trace, whole or not at all, and returns where it is.
func (p *profiler) write(name string, trace *chrometrace.Trace, raw []byte) (string, error) {
	dir := filepath.Join(p.dir, name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	path := filepath.Join(dir, timelineFile)
	var timeline bytes.Buffer
	if _, err := trace.WriteTo(&timeline); err != nil {
		return "", err
	}
	fs, err := storage.Local(dir)
	if err != nil {
		return "", err
	}
	if err := storage.Replace(fs, timelineFile, timeline.Bytes()); err != nil || len(raw) == 0 {
		return path, err
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	dir = filepath.Join(p.dir, filepath.FromSlash(tensorBoardDir), name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	if fs, err = storage.Local(dir); err != nil {
		return "", err
	}
	return path, storage.Replace(fs, host+".xplane.pb", raw)
}

// spent sums up what the trainer's and the devices' time went to.
func spent(events []chrometrace.Event) []string {
	type sum struct {
		name  string
		n     int
		total time.Duration
	}
	var sums []sum
	at := map[string]int{}
	for _, e := range events {
		if e.Process != hostProcess && e.Process != deviceProcess {
			continue
		}
		name := e.Name
		if e.Process == deviceProcess {
			name = "devices: " + name
		}
		i, ok := at[name]
		if !ok {
			i = len(sums)
			at[name] = i
			sums = append(sums, sum{name: name})
		}
		sums[i].n++
		sums[i].total += e.Length
	}
	var out []string
	for _, s := range sums {
		mean := s.total / time.Duration(s.n)
		out = append(out, fmt.Sprintf("%-16s %4d × %v", s.name, s.n, mean.Round(time.Microsecond)))
	}
	return out
}

// traceProgram notes when the devices worked on a step.
func (t *trainer) traceProgram(p *Pending) {
	start, end := p.dispatched, p.finished()
	if t.profile.busy.After(start) {
		start = t.profile.busy // they were still at the step before
	}
	t.profile.busy = end
	if t.profile.trace == nil || p.dispatched.Before(t.profile.began) {
		return
	}
	t.profile.trace.Add(chrometrace.Event{
		Process: deviceProcess, Track: programTrack, Name: "step", Start: start, Length: max(0, end.Sub(start)), Args: map[string]any{"step": p.number},
	})
}

// Profile trains the first steps that a recipe says and traces the last of them, after
// warmup others. It saves nothing but the traces and the metrics, in a folder of
// job.dump_folder. It returns where the traces are.
func Profile(ctx context.Context, o RunOptions, warmup, steps int) (*Result, string, error) {
	r := *o.Recipe
	if need := warmup + steps; r.Training.Steps < need {
		return nil, "", fmt.Errorf("train: training.steps is %d, and %d before the %d to trace are %d: trace fewer, or set training.steps to %d", r.Training.Steps, warmup, steps, need, need)
	}
	r.Checkpoint.Enable = false
	r.Job.DumpFolder = filepath.Join(r.Job.DumpFolder, "profile")
	r.Profiling.Enable, r.Profiling.Freq, r.Profiling.Active = true, warmup+steps, steps
	o.Recipe, o.LastStep = &r, int64(warmup+steps)
	res, err := Run(ctx, o)
	return res, filepath.Join(r.Job.DumpFolder, r.Profiling.TracesFolder), err
}
