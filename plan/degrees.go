package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"titan/configs"
	"titan/mesh"
	"titan/models/decoder"
	"titan/parallel"
)

// degrees are how the devices are shared out.
type degrees struct{ replicate, shard, tensor, context, expert, pipeline int }

// meshes lists how a recipe's devices can be shared out: copies in powers of two, at
// least one a slice, with or without ep; with tp or cp, of which one is beyond 1, if
// within, too. What the recipe has is one of them, and stages of a pipeline stay as
// they are.
func meshes(r *configs.Recipe, devices int, within bool) []degrees {
	t, err := mesh.ParseTopology(r.Mesh.Topology)
	if err != nil {
		return nil
	}
	p := r.Parallelism
	type split struct{ tensor, context, expert int }
	splits := []split{{1, 1, 1}, {p.Tensor, p.Context, p.Expert}}
	for n := 2; n <= mostSplit; n *= 2 {
		if within {
			splits = append(splits, split{n, 1, 1}, split{1, n, 1})
		}
		if c, err := r.Decoder(); err == nil && c.MoE != nil {
			splits = append(splits, split{1, 1, n})
		}
	}
	var out []degrees
	for _, s := range splits {
		left := devices / s.tensor / s.context / p.Pipeline
		if left*s.tensor*s.context*p.Pipeline != devices {
			continue
		}
		copies := []int{p.Replicate}
		for n := max(1, t.Slices); n <= left; n *= 2 {
			copies = append(copies, n)
		}
		for _, n := range copies {
			d := degrees{n, left / n, s.tensor, s.context, s.expert, p.Pipeline}
			if n*d.shard == left && d.shard%s.expert == 0 && !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// data is over how many devices the sequences are split.
func (d degrees) data() int { return d.replicate * d.shard }

// changes are settings of a recipe's keys, those only that are not as they were.
type changes []string

func (c *changes) set(key string, was, is any, text string) {
	if fmt.Sprint(was) != fmt.Sprint(is) {
		*c = append(*c, key+"="+text)
	}
}

func (c *changes) number(key string, was, is int) { c.set(key, was, is, strconv.Itoa(is)) }

// set are the keys of a recipe that has p.
func (d degrees) set(p *parallel.Config) []string {
	var c changes
	c.number("parallelism.data_parallel_replicate_degree", p.Replicate, d.replicate)
	if p.Shard != -1 {
		c.number("parallelism.data_parallel_shard_degree", p.Shard, d.shard)
	}
	c.number("parallelism.tensor_parallel_degree", p.Tensor, d.tensor)
	c.number("parallelism.context_parallel_degree", p.Context, d.context)
	c.number("parallelism.expert_parallel_degree", p.Expert, d.expert)
	return c
}

// batchSet are the keys of a recipe that has t, with so many sequences at a time on
// each of data devices, and so many in a step.
func batchSet(t *configs.Training, rows, data, sequences int) []string {
	var c changes
	c.number("training.local_batch_size", t.LocalBatchSize, rows)
	if t.GlobalBatchSize != -1 || rows*data != sequences { // -1: one pass
		c.number("training.global_batch_size", t.GlobalBatchSize, sequences)
	}
	return c
}

// batches lists how many sequences the devices that share them can work on at a time.
func batches(sequences, data int) []int {
	var out []int
	if sequences%data != 0 {
		return nil
	}
	for n := 1; n <= min(mostRows, sequences/data); n++ {
		if sequences/data%n == 0 {
			out = append(out, n)
		}
	}
	return out
}

// policies lists what is weighed of activation checkpointing: what mode memory_budget
// chooses from, and layers' inputs on the host with the results of attention on the
// device.
func policies(r *configs.Recipe) []decoder.ActivationCheckpoint {
	c, err := r.Decoder()
	if err != nil {
		return nil
	}
	host := []string{decoder.NameLayerIn}
	return append((decoder.ActivationCheckpoint{Offload: host}).Candidates(&c),
		decoder.ActivationCheckpoint{Mode: decoder.RematSelective, SelectiveOption: "op", Save: []string{decoder.NameAttnOut}, Offload: host})
}

// policySet are the keys of a recipe that has was.
func policySet(was *decoder.ActivationCheckpoint, p decoder.ActivationCheckpoint) []string {
	var c changes
	c.set("activation_checkpoint.mode", was.Mode, p.Mode, p.Mode)
	c.set("activation_checkpoint.offload", was.Offload, p.Offload, list(p.Offload))
	if p.Mode == decoder.RematSelective {
		c.set("activation_checkpoint.selective_ac_option", was.SelectiveOption, p.SelectiveOption, strconv.Quote(p.SelectiveOption))
		if p.SelectiveOption == "op" {
			c.set("activation_checkpoint.save", was.Save, p.Save, list(p.Save))
		}
	}
	return c
}

// list is an array of strings in TOML.
func list(names []string) string {
	quoted := make([]string, len(names))
	for k, n := range names {
		quoted[k] = strconv.Quote(n)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
