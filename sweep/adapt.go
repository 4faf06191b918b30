package sweep

import (
	"fmt"
	"strconv"
	"strings"

	"titan/configs"
	"titan/internal/plural"
	"titan/metrics"
	"titan/parallel"
)

// Keys of the recipe that a mode adapts.
const (
	keyReplicate   = "parallelism.data_parallel_replicate_degree"
	keyShard       = "parallelism.data_parallel_shard_degree"
	keyTensor      = "parallelism.tensor_parallel_degree"
	keyContext     = "parallelism.context_parallel_degree"
	keyPipeline    = "parallelism.pipeline_parallel_degree"
	keyExpert      = "parallelism.expert_parallel_degree"
	keyLocalBatch  = "training.local_batch_size"
	keyGlobalBatch = "training.global_batch_size"
)

// degrees are how a point shares out the work.
type degrees struct {
	parallel.Config
	local, global int
	// varied are the keys that the point has values for.
	varied map[string]bool
}

// degreesOf returns the recipe's degrees and batch with a point's values. What is
// no number is left for configs.Load to refuse.
func degreesOf(r *configs.Recipe, values []Value) degrees {
	d := degrees{Config: r.Parallelism, local: r.Training.LocalBatchSize, global: r.Training.GlobalBatchSize, varied: map[string]bool{}}
	for _, v := range values {
		d.varied[v.Key] = true
		at := map[string]*int{
			keyReplicate: &d.Replicate, keyShard: &d.Shard, keyTensor: &d.Tensor, keyContext: &d.Context,
			keyPipeline: &d.Pipeline, keyExpert: &d.Expert, keyLocalBatch: &d.local, keyGlobalBatch: &d.global,
		}[v.Key]
		if n, err := strconv.ParseInt(v.Value, 0, 32); at != nil && err == nil && (n > 0 || n == -1) {
			*at = int(n)
		}
	}
	return d
}

// point makes a point of a combination of values and machines.
func (s Spec) point(base *configs.Recipe, values []Value, at size) Point {
	p := Point{Values: values, Source: s.Source, Status: Pending, Devices: at.devices, Asked: at.asked}
	if at.topology != nil {
		p.Topology, p.Chips = at.topology.String(), at.topology.Chips()
	}
	for _, v := range values {
		p.Set = append(p.Set, v.String())
	}
	fail := func(format string, args ...any) Point {
		p.Status, p.Error = Impossible, fmt.Sprintf(format, args...)
		return p
	}
	if at.reason != "" {
		return fail("%s", at.reason)
	}
	if !at.own() {
		p.Set = append(p.Set, machineKeys(base, at)...)
		d := degreesOf(base, values)
		set, how, err := s.adapt(base, d, at)
		if err != nil {
			return fail("%v", err)
		}
		p.Set, p.Adapted = append(p.Set, set...), how
	}
	r, err := s.load(p)
	if err != nil {
		return fail("%s", oneLine(err))
	}
	if err := p.describe(r); err != nil {
		return fail("%s", oneLine(err))
	}
	return p
}

// load reads the recipe of a point.
func (s Spec) load(p Point) (*configs.Recipe, error) {
	return loadPoint(s.Recipe, s.Set, s.Source, s.Steps, p)
}

// loadPoint reads the recipe of a point. What a run is measured without (its
// checkpoints and validation) is switched off, unless a value says otherwise.
func loadPoint(recipe string, set []string, source Source, steps int, p Point) (*configs.Recipe, error) {
	all := append([]string{}, set...)
	if source == Run {
		base, _, err := configs.Load(recipe, set)
		if err != nil {
			return nil, err
		}
		if base.LRScheduler.TotalSteps == -1 { // the rates of the whole run, of which this is the beginning
			all = append(all, fmt.Sprintf("lr_scheduler.total_steps=%d", base.Training.Steps))
		}
		all = append(all, fmt.Sprintf("training.steps=%d", steps), "checkpoint.enable=false", "validation.enable=false",
			"metrics.log_freq=1", "metrics.enable_json=true", "metrics.save_json_file="+metricsFile, "metrics.enable_tensorboard=false")
	}
	r, _, err := configs.Load(recipe, append(all, p.Set...))
	return r, err
}

// metricsFile is where a run of a sweep writes its figures.
const metricsFile = "metrics.jsonl"

// machineKeys sets the machines of a point.
func machineKeys(base *configs.Recipe, at size) []string {
	if at.topology != nil {
		return []string{"mesh.platform=tpu", "mesh.devices=0", "mesh.topology=" + at.topology.String()}
	}
	out := []string{fmt.Sprintf("mesh.devices=%d", at.devices)}
	if base.Mesh.Platform == "tpu" { // there are none here
		out = append(out, "mesh.platform=cpu")
	}
	if base.Mesh.Topology != "" {
		out = append(out, "mesh.topology=\"\"")
	}
	return out
}

// adapt returns the keys by which the recipe fits the machines of a point, and
// says how. A copy of the parameters is sharded over as many devices as in the
// recipe, or over fewer where a slice has no more; further devices are further
// copies. In weak mode a device keeps its sequences and passes; in strong mode the
// step keeps its sequences.
func (s Spec) adapt(base *configs.Recipe, d degrees, at size) (set []string, how string, err error) {
	others, slices := d.Tensor*d.Context*d.Pipeline, 1
	if at.topology != nil {
		slices = at.topology.Slices
	}
	if at.devices%others != 0 {
		return nil, "", fmt.Errorf("tensor, context and pipeline parallelism take %d devices together, which do not divide %d", others, at.devices)
	}
	copies, shard, err := d.share(base, at.devices/others, slices)
	if err != nil {
		return nil, "", err
	}
	if !d.varied[keyReplicate] {
		set = append(set, fmt.Sprintf("%s=%d", keyReplicate, copies))
	}
	if !d.varied[keyShard] {
		set = append(set, fmt.Sprintf("%s=%d", keyShard, shard))
	}
	how = fmt.Sprintf("%d copies of the parameters over %s each", copies, plural.Of(shard, "device"))
	if copies == 1 {
		how = "one copy of the parameters over " + plural.Of(shard, "device")
	}
	batch, says, err := s.batch(base, d, copies*shard)
	if err != nil {
		return nil, "", err
	}
	return append(set, batch...), strings.TrimSuffix(how+"; "+says, "; "), nil
}

// share returns how many copies of the parameters there are on n devices, and over
// how many each is sharded.
func (d degrees) share(base *configs.Recipe, n, slices int) (copies, shard int, err error) {
	if d.varied[keyReplicate] {
		if n%d.Replicate != 0 {
			return 0, 0, fmt.Errorf("%d copies of the parameters do not divide %d devices", d.Replicate, n)
		}
		return d.Replicate, n / d.Replicate, nil
	}
	most := d.Shard
	if most == -1 {
		most = n
		if axes, err := base.MeshAxes(); err == nil && !d.varied[keyShard] && base.Mesh.Count() > 0 {
			most = parallel.BatchDegree(axes) / base.Parallelism.Replicate
		}
	}
	for shard = min(most, n); shard >= 1; shard-- {
		if n%shard == 0 && shard%d.Expert == 0 && n/shard*d.Pipeline%slices == 0 {
			return n / shard, shard, nil
		}
	}
	if n%d.Expert != 0 {
		return 0, 0, fmt.Errorf("expert_parallel_degree is %d and does not divide the %d devices that sequences are spread over", d.Expert, n)
	}
	return 0, 0, fmt.Errorf("the %d devices that sequences are spread over do not divide into copies of the parameters that each lie inside one of %d slices and are a multiple of expert_parallel_degree (%d)", n, slices, d.Expert)
}

// batch returns the keys of the batch where sequences go to so many devices.
func (s Spec) batch(base *configs.Recipe, d degrees, devices int) (set []string, how string, err error) {
	switch s.Mode {
	case Weak:
		passes, err := d.passes(base)
		if err != nil {
			return nil, "", err
		}
		if d.global != -1 {
			set = []string{fmt.Sprintf("%s=%d", keyGlobalBatch, passes*d.local*devices)}
		}
		return set, fmt.Sprintf("%s a device as in the recipe", passesOf(passes, d.local)), nil
	case Strong:
		total := d.global
		if total == -1 || !d.varied[keyGlobalBatch] {
			if total, err = base.GlobalBatch(); err != nil {
				return nil, "", err
			}
		}
		local, passes, err := d.split(total, devices)
		if err != nil {
			return nil, "", err
		}
		set = []string{fmt.Sprintf("%s=%d", keyGlobalBatch, total)}
		if local != d.local {
			set = append(set, fmt.Sprintf("%s=%d", keyLocalBatch, local))
		}
		return set, fmt.Sprintf("%s a step as in the recipe, %s a device", plural.Of(total, "sequence"), passesOf(passes, local)), nil
	}
	return nil, "", nil
}

func passesOf(passes, local int) string {
	if passes == 1 {
		return "one pass of " + plural.Of(local, "sequence")
	}
	return fmt.Sprintf("%d passes of %s", passes, plural.Of(local, "sequence"))
}

// passes returns how many passes a step of the recipe has on its own machines.
func (d degrees) passes(base *configs.Recipe) (int, error) {
	if d.global == -1 {
		return 1, nil
	}
	dp, err := base.DataParallel()
	if err != nil {
		return 0, err
	}
	if n := d.local * dp; d.global%n != 0 {
		return 0, fmt.Errorf("a step of %d sequences is no whole number of passes of %d on each of the recipe's %d data-parallel devices", d.global, d.local, dp)
	}
	return d.global / (d.local * dp), nil
}

// split shares out the sequences of a step over devices: in passes of as many as
// the recipe has or, where those do not divide, of fewer. A pipeline needs as many
// passes as it has stages.
func (d degrees) split(total, devices int) (local, passes int, err error) {
	if total < devices {
		return 0, 0, fmt.Errorf("a step of %d sequences cannot be shared out over %d data-parallel devices: less than one each; with context or tensor parallelism several share a sequence", total, devices)
	}
	if total%devices != 0 {
		return 0, 0, fmt.Errorf("a step of %d sequences is no multiple of %d data-parallel devices", total, devices)
	}
	each := total / devices
	least := max(1, d.Pipeline)
	for local = min(d.local, each); local >= 1; local-- {
		if each%local == 0 && each/local >= least {
			return local, each / local, nil
		}
	}
	return 0, 0, fmt.Errorf("%d sequences a device are fewer passes than the %d stages of the pipeline need", each, d.Pipeline)
}

// describe fills in what a recipe is, before anything is tried.
func (p *Point) describe(r *configs.Recipe) error {
	axes, err := r.MeshAxes()
	if err != nil {
		return err
	}
	p.Devices = 1
	for _, a := range axes {
		p.Mesh = append(p.Mesh, Axis{a.Name, a.Size})
		p.Devices *= a.Size
	}
	if p.Topology == "" && r.Mesh.Topology != "" {
		p.Topology, p.Chips = r.Mesh.Topology, chipsOf(r.Mesh.Topology)
	}
	if p.Passes, err = r.MicroSteps(); err != nil {
		return err
	}
	if p.GlobalBatch, err = r.GlobalBatch(); err != nil {
		return err
	}
	if p.Tokens, err = r.TokensPerStep(); err != nil {
		return err
	}
	p.LocalBatch = r.Training.LocalBatchSize
	c, err := r.Decoder()
	if err != nil {
		return err
	}
	p.Parameters = metrics.ShapeOf(&c).Params
	return nil
}
