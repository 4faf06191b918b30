package plan

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"titan/configs"
	"titan/internal/human"
	"titan/models/decoder"
)

// Choice is a mesh, a batch and a policy of activation checkpointing with which a
// recipe can be run.
type Choice struct {
	// Set are the keys to change, as --set takes them; nil for the recipe as it is.
	Set  []string `json:"set"`
	Mesh string   `json:"mesh"`
	// Rows are the sequences that the devices of a replica of the model work on at a
	// time, Passes how often a step does.
	Rows   int    `json:"local_batch_size"`
	Passes int    `json:"passes"`
	Policy string `json:"policy"`
	// Guess is the time of a step, in seconds, by the program's own counts.
	Guess float64 `json:"guessed_step_seconds"`
	// What the compiled step needs and is expected to take; 0 if it was not compiled.
	Needed          int64   `json:"needed,omitempty"`
	Fits            bool    `json:"fits"`
	Tight           bool    `json:"tight,omitempty"`
	Seconds         float64 `json:"step_seconds,omitempty"`
	Exposed         float64 `json:"exposed_seconds,omitempty"`
	TokensPerSecond float64 `json:"tokens_per_second_device,omitempty"`
	MFU             float64 `json:"mfu_percent_causal,omitempty"`

	counted, arguments int64
	host               int64
	shape              []string // the part of Set that is mesh and batch
}

// Choices are what was weighed and compiled for a recipe.
type Choices struct {
	// Weighed is how many combinations were traced, Room how many of them have room by
	// the program's own count.
	Weighed int `json:"weighed"`
	Room    int `json:"with_room"`
	// Compiled are those that were compiled, in that order, the recipe as it is first.
	Compiled []Choice `json:"compiled"`
	// Chosen is the one of them that the report is about.
	Chosen int `json:"chosen"`
}

// ChoiceColumns name what [Choices.Rows] says.
var ChoiceColumns = []string{"mesh", "sequences", "kept", "guessed", "predicted", "tokens/s a device", "MFU", "exposed", "memory", ""}

// Rows says what is known of each step that was compiled, by [ChoiceColumns].
// Sequences are passes × those of a pass.
func (c *Choices) Rows() [][]string {
	var out [][]string
	for k, x := range c.Compiled {
		memory := "does not fit"
		if x.Needed > 0 {
			memory = human.Memory(x.Needed)
			if !x.Fits {
				memory += ", does not fit"
			}
			if x.Tight {
				memory += ", only just"
			}
		}
		var as []string
		if k == 0 {
			as = append(as, "the recipe")
		}
		if k == c.Chosen && x.Fits {
			as = append(as, "chosen")
		}
		speed := []string{"", "", "", ""}
		if x.Seconds > 0 {
			speed = []string{human.Seconds(x.Seconds), human.Count(x.TokensPerSecond), fmt.Sprintf("%.1f%%", x.MFU), human.Seconds(x.Exposed)}
		}
		row := append([]string{x.Mesh, fmt.Sprintf("%d × %d", x.Passes, x.Rows), x.Policy, human.Seconds(x.Guess)}, speed...)
		out = append(out, append(row, memory, strings.Join(as, ", ")))
	}
	return out
}

// Weighing says how many combinations there were.
func (c *Choices) Weighing() string {
	return fmt.Sprintf("%s of mesh, batch and policy by the program's own counts, %s of which should fit", human.Counted(c.Weighed, "combination"), human.Int(c.Room))
}

// String is a table of what was compiled.
func (c *Choices) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "weighed   %s; compiled:\n", c.Weighing())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{ChoiceColumns}, c.Rows()...) {
		fmt.Fprintf(w, "          %s\n", strings.Join(row, "\t"))
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// most bounds of a choice.
const (
	mostSplit   = 8  // of tp, cp and ep
	mostRows    = 64 // sequences at a time
	mostShapes  = 12 // meshes and batches that are weighed under all policies
	mostOnAMesh = 2  // compiled steps of one mesh before those of others
)

// Choose plans the mesh, the batch of a pass and the policy of activation
// checkpointing with which a recipe's step is fastest on its topology, of those that
// it compiles: the recipe as it is and up to tries others. Model, topology,
// sequences of a step and all else stay as they are.
//
// Combinations of mesh and batch are traced under the policies that keep least, the
// best of them under all, and put in order by the program's own counts (see guess);
// the first are compiled, and each corrects the count of memory of the others. If none fits, the report is about the recipe as it
// is. load gives the recipe with further keys set.
func Choose(ctx context.Context, o Options, tries int, load func(set ...string) (*configs.Recipe, error)) (*Report, error) {
	return choose(ctx, o, tries, load, Make)
}

// choose is Choose with another way to plan.
func choose(ctx context.Context, o Options, tries int, load func(set ...string) (*configs.Recipe, error), plan func(context.Context, Options) (*Report, error)) (*Report, error) {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	own, err := build(o.Recipe)
	if err != nil {
		return nil, err
	}
	c := &chooser{ctx: ctx, options: o, load: load, plan: plan, ratio: 1, sequences: own.sequences(), devices: own.mesh.Size(), onMesh: map[string]int{}}
	if c.machine, err = newMachine(own.topology.Kind); err != nil {
		return nil, err
	}
	if remat := own.recipe.ActivationCheckpoint; remat.Mode == decoder.RematBudget {
		b, err := remat.Budget()
		if err != nil {
			return nil, err
		}
		c.budget = &b
	}
	// The recipe as it is comes first: it says how wrong the program's own count of
	// memory is, and what there is to gain.
	asIs, err := c.weighed(own, nil)
	if err != nil {
		return nil, err
	}
	if err := c.compile(asIs, o.Recipe); err != nil {
		return nil, err
	}
	all, err := c.candidates()
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if c.room(x) {
			c.out.Room++
		}
	}
	all = slices.DeleteFunc(all, asIs.same)
	for range tries {
		k := slices.IndexFunc(all, func(x Choice) bool { return c.room(x) && c.onMesh[x.Mesh] < mostOnAMesh })
		if k < 0 {
			if k = slices.IndexFunc(all, c.room); k < 0 {
				break
			}
		}
		x := all[k]
		all = slices.Delete(all, k, k+1)
		r, err := load(x.Set...)
		if err != nil {
			return nil, err
		}
		o.Log("trying %s", strings.Join(x.Set, " "))
		if err := c.compile(x, r); err != nil {
			return nil, fmt.Errorf("plan: trying %s: %w", strings.Join(x.Set, " "), err)
		}
	}
	c.best.Choices = &c.out
	return c.best, nil
}

// chooser is a choice under way.
type chooser struct {
	ctx       context.Context
	options   Options
	load      func(set ...string) (*configs.Recipe, error)
	plan      func(context.Context, Options) (*Report, error)
	machine   machine
	devices   int
	sequences int                   // of a step
	limit     int64                 // of a device's memory
	budget    *decoder.MemoryBudget // of the recipe, nil if it has none
	// ratio is what compiled steps need besides arguments, by what was counted.
	ratio  float64
	onMesh map[string]int // compiled steps that fit
	out    Choices
	best   *Report
}

// sequences is how many a step has.
func (s *traced) sequences() int { return s.options.Rows * max(1, s.options.Passes) }

// same tells whether two choices are one.
func (x Choice) same(y Choice) bool {
	return x.Mesh == y.Mesh && x.Rows == y.Rows && x.Passes == y.Passes && x.Policy == y.Policy
}

// room tells whether a choice should fit.
func (c *chooser) room(x Choice) bool {
	return x.arguments+int64(c.ratio*float64(x.counted)) <= c.limit && x.host <= c.machine.hostLimit()
}

// weighed is a choice that is traced.
func (c *chooser) weighed(s *traced, set []string) (Choice, error) {
	g, err := s.guess(c.machine)
	if err != nil {
		return Choice{}, err
	}
	return Choice{
		Set: set, Mesh: s.mesh.String(), Rows: s.recipe.Training.LocalBatchSize, Passes: max(1, s.options.Passes), Policy: s.recipe.ActivationCheckpoint.String(),
		Guess: g.seconds, counted: g.memory, arguments: s.arguments, host: g.host,
	}, nil
}

// compile compiles a choice, and learns from it.
func (c *chooser) compile(x Choice, r *configs.Recipe) error {
	o := c.options
	o.Recipe = r
	got, err := c.plan(c.ctx, o)
	if err != nil {
		return err
	}
	x.take(got)
	// Within a memory budget what was counted is not what was compiled.
	budget := r.ActivationCheckpoint.Mode == decoder.RematBudget
	if c.limit = got.Memory.Limit; c.budget != nil && (!budget || got.Memory.Fits) { // what does not fit says the budget itself
		c.limit = min(c.limit, c.budget.Of(c.limit))
	}
	if x.Fits && x.Needed > c.limit {
		x.Fits, x.Tight = false, false
	}
	if n := got.Memory.Needed - got.Memory.Arguments; n > 0 && x.counted > 0 && !budget {
		c.ratio = float64(n) / float64(x.counted)
	}
	if x.Fits {
		c.onMesh[x.Mesh]++
	}
	c.out.Compiled = append(c.out.Compiled, x)
	if c.best == nil || x.Fits && x.betterThan(c.out.Compiled[c.out.Chosen]) {
		c.best, c.out.Chosen = got, len(c.out.Compiled)-1
	}
	return nil
}

// betterThan puts what fits before what fits only just, before what only just does
// not, before what does not, and then goes by time.
func (x Choice) betterThan(y Choice) bool {
	if x.Fits != y.Fits {
		return x.Fits
	}
	if x.Tight != y.Tight {
		return x.Tight != x.Fits
	}
	return x.Fits && x.Seconds < y.Seconds
}

// take fills in what is known of a compiled step.
func (x *Choice) take(r *Report) {
	x.Needed, x.Fits, x.Tight = r.Memory.Needed, r.Memory.Fits, r.Memory.Tight
	if p := r.Prediction; p != nil {
		x.Seconds, x.Exposed = p.Seconds, p.share(Communication).Seconds
	}
	x.TokensPerSecond, x.MFU = r.TokensPerSecond, r.MFU.Causal
}

// candidates traces what is possible and returns it, what should be fastest first.
// The policies that keep least show which meshes and batches are worth weighing
// under all.
func (c *chooser) candidates() ([]Choice, error) {
	r := c.options.Recipe
	var least, every [][]string
	for _, p := range policies(r) {
		set := policySet(&r.ActivationCheckpoint, p)
		if every = append(every, set); p.Mode == decoder.RematFull {
			least = append(least, set)
		}
	}
	// Devices that share sequences or matrices only add to what is sent: they are
	// weighed if nothing has room without.
	var first []Choice
	for _, within := range []bool{false, true} {
		var shapes [][]string
		for _, d := range meshes(r, c.devices, within) {
			for _, rows := range batches(c.sequences, d.data()) {
				shapes = append(shapes, slices.Concat(d.set(&r.Parallelism), batchSet(&r.Training, rows, d.data(), c.sequences)))
			}
		}
		c.options.Log("weighing %s of mesh and batch", human.Counted(len(shapes), "combination"))
		var err error
		if first, err = c.trace(shapes, least); err != nil {
			return nil, err
		}
		c.out.Weighed = len(first)
		if slices.ContainsFunc(first, c.room) {
			break
		}
	}
	var best [][]string // meshes and batches, by the guess for the fastest that fits
	for _, x := range first {
		known := slices.ContainsFunc(best, func(s []string) bool { return slices.Equal(s, x.shape) })
		if c.room(x) && len(best) < mostShapes && !known {
			best = append(best, x.shape)
		}
	}
	if len(best) == 0 {
		return nil, nil
	}
	all, err := c.trace(best, every)
	c.out.Weighed = len(all)
	return all, err
}

// trace traces all shapes under all policies; what is not possible for other reasons,
// such as a number of heads that does not divide, is left out.
func (c *chooser) trace(shapes, policies [][]string) ([]Choice, error) {
	type job struct{ shape, policy []string }
	jobs := make(chan job)
	var (
		mu      sync.Mutex
		out     []Choice
		problem error
		refused error // the first
		workers sync.WaitGroup
	)
	refuse := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if refused == nil {
			refused = err
		}
	}
	for range runtime.GOMAXPROCS(0) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for j := range jobs {
				set := slices.Concat(j.shape, j.policy)
				r, err := c.load(set...)
				if err != nil {
					refuse(err)
					continue
				}
				s, err := build(r)
				if err != nil {
					refuse(err)
					continue
				}
				x, err := c.weighed(s, set)
				x.shape = j.shape
				mu.Lock()
				if out = append(out, x); err != nil {
					problem = err
				}
				mu.Unlock()
			}
		}()
	}
	for _, shape := range shapes {
		for _, policy := range policies {
			if c.ctx.Err() == nil {
				jobs <- job{shape, policy}
			}
		}
	}
	close(jobs)
	workers.Wait()
	if err := cmp.Or(problem, c.ctx.Err()); err != nil {
		return nil, err
	}
	if len(out) == 0 && refused != nil {
		return nil, fmt.Errorf("plan: there is nothing to choose from; of one combination: %w", refused)
	}
	// The order does not depend on which was traced first.
	slices.SortFunc(out, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Guess, b.Guess), cmp.Compare(a.counted, b.counted), slices.Compare(a.Set, b.Set))
	})
	return out, nil
}
