package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"titan/internal/human"
	"titan/internal/plural"
)

// Options say how points are tried.
type Options struct {
	// Command starts titan: the path of its binary and what comes before the verb.
	Command []string
	// Env is added to the environment of its processes.
	Env []string
	// Timeout ends a point that takes longer; 0: none does.
	Timeout time.Duration
	// Again says which points of an earlier sweep in the same folder are repeated.
	Again Repeat
	// Versions are noted at the points.
	Versions Versions
	// Log hears what happens, if not nil.
	Log func(format string, args ...any)
}

// StoppedError says at which point a sweep was when its context ended.
type StoppedError struct {
	Point string // its ID
	cause error
}

func (e *StoppedError) Error() string {
	return fmt.Sprintf("sweep: stopped at %s; the same command goes on from there", e.Point)
}

func (e *StoppedError) Unwrap() error { return e.cause }

// Execute tries all points of a sweep that are not done, each in a process of its
// own, and keeps in the folder what comes out. A point that fails is no error. If
// ctx ends, the point under way is left to be repeated.
func Execute(ctx context.Context, dir string, s *Sweep, o Options) error {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	f, err := openFolder(dir)
	if err != nil {
		return err
	}
	defer f.close()
	warnings, err := f.resume(s, o.Again)
	for _, w := range warnings {
		o.Log("warning: %s", w)
	}
	if err != nil {
		return err
	}
	s.markExtrapolated()
	if err := f.save(s); err != nil {
		return err
	}
	todo, n := 0, 0
	for i := range s.Points {
		if s.toTry(&s.Points[i]) {
			todo++
		}
	}
	for i := range s.Points {
		p := &s.Points[i]
		if !s.toTry(p) {
			continue
		}
		n++
		o.Log("[%d/%d] %s: %s", n, todo, p.ID, p.what())
		if err := f.try(ctx, s, p, o); err != nil {
			return err
		}
		o.Log("[%d/%d] %s: %s", n, todo, p.ID, p.outcome())
	}
	s.extrapolate()
	return f.save(s)
}

// toTry says whether a process has to be started for a point.
func (s *Sweep) toTry(p *Point) bool { return !p.Done() && p.Source != Extrapolated }

// what says what a point is, in words.
func (p *Point) what() string {
	on := p.Topology
	if on == "" {
		on = plural.Of(p.Devices, "device")
	}
	parts := []string{on, p.MeshString(), plural.Of(p.GlobalBatch, "sequence") + " a step"}
	if v := p.ValuesString(); v != "" {
		parts = append(parts, v)
	}
	return strings.Join(parts, ", ")
}

// outcome says what came out of a point, in words.
func (p *Point) outcome() string {
	took := human.Seconds(p.Wall)
	if p.Status != OK {
		return fmt.Sprintf("%s after %s: %s", p.Status, took, p.Error)
	}
	return fmt.Sprintf("%s a step, %s tokens/s a device (%s)", human.Seconds(p.StepSeconds), human.Count(p.TPSDevice), took)
}

// try tries one point. The error is one of the sweep: its folder, or ctx.
func (f *folder) try(ctx context.Context, s *Sweep, p *Point, o Options) error {
	fresh := *p
	dir, err := f.begin(p)
	if err != nil {
		return err
	}
	p.Status = Running
	if err := f.save(s); err != nil {
		return err
	}
	began := time.Now()
	err = f.process(ctx, s, p, dir, o)
	if ctx.Err() != nil {
		*p = fresh
		if err := f.save(s); err != nil {
			return err
		}
		return &StoppedError{Point: p.ID, cause: ctx.Err()}
	}
	p.Wall, p.Versions.Titan = time.Since(began).Seconds(), o.Versions.Titan
	p.Versions.Plugin = cmp.Or(p.Versions.Plugin, o.Versions.Plugin) // what it says of itself is better
	if err != nil {
		p.Status, p.Error = Failed, err.Error()
		if p.Failure == NotFailed {
			p.Failure = Crashed
		}
	} else {
		p.Status = OK
	}
	return f.save(s)
}

// process runs titan for a point and reads what it wrote. Its error is the
// point's.
func (f *folder) process(ctx context.Context, s *Sweep, p *Point, dir string, o Options) error {
	r, err := loadPoint(s.Recipe, s.Set, s.Source, s.Steps, *p)
	if err != nil {
		return errors.New(oneLine(err))
	}
	r.Job.DumpFolder = filepath.Join(dir, runDir)
	recipe := filepath.Join(dir, recipeFile)
	if err := os.WriteFile(recipe, []byte(r.TOML(nil)), 0o666); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	p.Log = f.relative(log.Name())
	args := []string{"train", "--config", recipe}
	if s.Source == Plan {
		args = []string{"plan", "--config", recipe, "--no-search", "--json", filepath.Join(dir, planFile)}
		if s.Quick {
			args = append(args, "--quick")
		}
	}
	err = start(ctx, append(append([]string{}, o.Command...), args...), o, log)
	closed := log.Close()
	var exit *exec.ExitError
	switch {
	case err == nil:
		err = closed
	case errors.Is(err, errTimeout):
		p.Failure = TimedOut
		return fmt.Errorf("took longer than %s", human.Seconds(o.Timeout.Seconds()))
	case errors.As(err, &exit):
		err = said(log.Name(), exit)
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			p.Failure = Killed
			return fmt.Errorf("the process was killed: %v; the system kills with 9 when its memory runs out", status.Signal())
		}
	}
	if s.Source == Plan {
		return p.readPlan(f, dir, err)
	}
	if err != nil {
		if strings.Contains(strings.ToLower(err.Error()), "out of memory") {
			p.Failure = OutOfMemory
		}
		return err
	}
	return p.readRun(f, dir, s.Warmup)
}

func (f *folder) relative(path string) string {
	if r, err := filepath.Rel(f.dir, path); err == nil {
		return filepath.ToSlash(r)
	}
	return path
}

// errTimeout says that a process was ended because it took too long.
var errTimeout = errors.New("timeout")

// grace is how long a process may take to end when it is asked to: less than
// titan itself has.
const grace = 1500 * time.Millisecond

// start runs a command to its end, or to that of ctx or of the time it is given.
func start(ctx context.Context, command []string, o Options, log *os.File) error {
	limited := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, o.Timeout, errTimeout)
		defer cancel()
	}
	// The process must not outlive this one; the system watches the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := exec.CommandContext(limited, command[0], command[1:]...)
	c.Env = append(os.Environ(), o.Env...)
	c.Stdout, c.Stderr = log, log
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = grace
	apart(c)
	err := c.Run()
	if err != nil && errors.Is(context.Cause(limited), errTimeout) {
		return errTimeout
	}
	return err
}

// mostSaid bounds what is kept of a message.
const mostSaid = 2000

// said returns what titan said before it failed: what follows its name in the log,
// or the last line.
func said(log string, exit *exec.ExitError) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return exit
	}
	const name = "titan: "
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	from := len(lines) - 1
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], name) {
			from = i
			break
		}
	}
	message := strings.TrimPrefix(oneLine(errors.New(strings.Join(lines[from:], "\n"))), name)
	if message == "" {
		return exit
	}
	if len(message) > mostSaid {
		message = strings.ToValidUTF8(message[:mostSaid], "") + "…"
	}
	return errors.New(message)
}
