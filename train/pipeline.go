package train

import (
	"maps"
	"slices"

	"titan/dtype"
	"titan/graph"
	"titan/models/decoder"
	"titan/parallel"
)

// pipeline trains the stages of a model, each on devices of its own, with the
// passes of a step as micro-batches, in the order called 1F1B (Narayanan et al.,
// 2019): as soon as a micro-batch has gone through all P stages it comes back, so
// that a stage holds the inputs of 2P-1 micro-batches at most, however many there
// are.
//
// All devices run one program in ticks. At tick t stage s works forward on
// micro-batch t-s and backward on t-2(P-1)+s. Before tick P-1 nothing comes back
// and after tick M+P-2 nothing goes forward: three loops, of P-1 ticks forward, M
// both ways, P-1 backward, which is a bubble of (P-1)/(M+P-1). What a stage does
// for a micro-batch that is not there counts for nothing. The backward pass of a
// stage begins from the stage's input, whose layers it computes again.
type pipeline struct {
	b      *graph.Builder
	m      *decoder.Model
	o      StepOptions
	in     map[string]*graph.Value // parameters ready for the stages, and the batch
	total  *graph.Value            // valid tokens of the step
	stages graph.Group
	slots  int // inputs that a stage holds for the way back
}

// ticks is where a pipeline is: the number of the tick and what is under way.
type ticks struct {
	forward  []*graph.Value // flow from the stage before
	held     []*graph.Value // inputs of micro-batches that have not come back
	backward []*graph.Value // cotangents from the stage behind
	grads    []*graph.Value
	sums     []*graph.Value // of the head: loss, own loss and tokens, aux, z
	chosen   []*graph.Value // of this stage's routers: tokens, dropped
}

func (k ticks) list() []*graph.Value {
	return slices.Concat(k.forward, k.held, k.backward, k.grads, k.sums, k.chosen)
}

// like takes the values of k's kind from a list.
func (k ticks) like(values []*graph.Value) ticks {
	take := func(n int) []*graph.Value {
		out := slices.Clone(values[:n])
		values = values[n:]
		return out
	}
	return ticks{take(len(k.forward)), take(len(k.held)), take(len(k.backward)), take(len(k.grads)), take(len(k.sums)), take(len(k.chosen))}
}

// isReady is a placement whose stacks are made ready for the layers already.
type isReady struct{ decoder.Placement }

func (isReady) Stack(x *graph.Value, _ string) *graph.Value { return x }

func newPipeline(b *graph.Builder, m *decoder.Model, ready map[string]*graph.Value, o StepOptions) *pipeline {
	return &pipeline{
		b: b, in: ready, o: o, stages: m.Placement.Stages(),
		m: &decoder.Model{Config: m.Config, Placement: isReady{m.Placement}, Options: m.Options},
	}
}

// evaluated returns the loss of a batch on a mesh with stages: one micro-batch goes
// forward through all of them.
func evaluated(b *graph.Builder, m *decoder.Model, in map[string]*graph.Value, o StepOptions) decoder.Loss {
	ready := maps.Clone(in)
	for _, p := range m.Config.Arrays() {
		ready[p.Name] = m.Placement.Stack(in[p.Name], p.Name)
	}
	p := newPipeline(b, m, ready, o)
	k := p.start(nil)
	p.loop(&k, 0, p.stages.Size-1, func(t *graph.Value, k *ticks) { p.send(k, p.forward(t, k)) })
	out := p.forward(p.int(p.stages.Size-1), &k)
	return p.m.Head(b, ready, decoder.FlowOf(out), p.batch(p.int(0)))
}

// pipelined computes what accumulate does, on a mesh with stages.
func pipelined(b *graph.Builder, m *decoder.Model, plan *parallel.Plan, in map[string]*graph.Value, o StepOptions) sums {
	params := m.Config.Params()
	wrt, used := make([]*graph.Value, len(params)), make([]*graph.Value, len(params))
	ready := maps.Clone(in)
	for _, p := range m.Config.Buffers() {
		ready[p.Name] = m.Placement.Stack(in[p.Name], p.Name)
	}
	for i, p := range params {
		wrt[i] = in[p.Name]
		used[i] = plan.Stack(plan.Once(wrt[i], p.Name), p.Name)
		ready[p.Name] = used[i]
	}
	every := m.Placement.Sequences()
	tokens := plan.Rows().Sum(graph.Sum(in[BatchValid]))
	pl := newPipeline(b, m, ready, o)
	pl.total, pl.slots = graph.Max(tokens, b.Scalar(dtype.F32, 1)), 2*pl.stages.Size-1
	end := pl.run(used)

	part := 1 / float64(o.Passes)
	s := sums{grads: graph.VJP(used, end.grads, wrt), tokens: tokens}
	s.loss = graph.Div(end.sums[0], pl.total)
	s.lossMax = every.Max(graph.Div(end.sums[1], graph.Max(end.sums[2], b.Scalar(dtype.F32, 1))))
	if len(end.chosen) > 0 {
		s.aux, s.z = graph.MulScalar(end.sums[3], part), graph.MulScalar(end.sums[4], part)
		s.experts = pl.stages.GatherSame(end.chosen[0], 0)
		s.dropped = graph.Div(pl.stages.Sum(end.chosen[1]), graph.Max(graph.Sum(s.experts), b.Scalar(dtype.F32, 1)))
	}
	return s
}

// run goes through all ticks. used are the parameters that gradients are for.
func (p *pipeline) run(used []*graph.Value) ticks {
	P, M := p.stages.Size, p.o.Passes
	k := p.start(used)
	p.loop(&k, 0, P-1, func(t *graph.Value, k *ticks) { p.send(k, p.forward(t, k)) })
	p.loop(&k, P-1, M, func(t *graph.Value, k *ticks) {
		out := p.forward(t, k)
		p.backward(t, k, used, p.head(t, k, used, out))
		p.send(k, out)
		p.sendBack(k)
	})
	p.loop(&k, M+P-1, P-1, func(t *graph.Value, k *ticks) {
		p.backward(t, k, used, nil)
		p.sendBack(k)
	})
	return k
}

// start is a pipeline in which nothing is under way.
func (p *pipeline) start(used []*graph.Value) ticks {
	var k ticks
	for _, v := range p.m.Embed(p.b, p.in, p.batch(p.int(0))).Values() {
		k.forward = append(k.forward, graph.ZerosLike(v))
		if used != nil {
			k.held = append(k.held, p.b.Zeros(graph.T(v.DType(), append([]int{p.slots}, v.Shape()...)...)))
			k.backward = append(k.backward, graph.ZerosLike(v))
		}
	}
	for _, v := range used {
		k.grads = append(k.grads, graph.Convert(graph.ZerosLike(v), dtype.F32))
	}
	zero := p.b.Scalar(dtype.F32, 0)
	k.sums = []*graph.Value{zero, zero, zero}
	if moe := p.m.Config.MoE; moe != nil {
		k.sums = append(k.sums, zero, zero)
		sparse, _ := p.m.Config.SparseLayers()
		k.chosen = []*graph.Value{p.b.Zeros(graph.T(dtype.F32, len(sparse)/p.stages.Size, moe.Experts)), zero}
	}
	return k
}

// loop goes through n ticks.
func (p *pipeline) loop(k *ticks, from, n int, tick func(t *graph.Value, k *ticks)) {
	if n == 0 {
		return
	}
	numbers := graph.Add(p.b.Iota(graph.T(dtype.S32, n), 0), p.int(from))
	carry, _ := p.b.Scan(k.list(), []*graph.Value{numbers}, func(carry, x []*graph.Value) (next, ys []*graph.Value) {
		now := k.like(carry)
		tick(x[0], &now)
		return now.list(), nil
	})
	*k = k.like(carry)
}

// batch takes a micro-batch; numbers that there are not give another.
func (p *pipeline) batch(number *graph.Value) decoder.Batch {
	one := map[string]*graph.Value{}
	for _, name := range batchNames {
		if one[name] = p.in[name]; one[name] != nil && p.o.Passes > 1 {
			one[name] = graph.Squeeze(graph.DynamicSliceDim(one[name], 0, number, 1), 0)
		}
	}
	return batchOf(one)
}

// there reports whether there is such a micro-batch.
func (p *pipeline) there(number *graph.Value) *graph.Value {
	return graph.And(graph.GreaterEqual(number, p.int(0)), graph.Less(number, p.int(p.o.Passes)))
}

func (p *pipeline) int(n int) *graph.Value { return p.b.Int(dtype.S32, int64(n)) }

// stage is the number of this device's stage.
func (p *pipeline) stage() *graph.Value { return p.stages.Index(p.b) }

// choose is graph.Select of lists.
func choose(which *graph.Value, yes, no []*graph.Value) []*graph.Value {
	out := make([]*graph.Value, len(yes))
	for i := range yes {
		out[i] = graph.Select(which, yes[i], no[i])
	}
	return out
}

func zerosLike(values []*graph.Value) []*graph.Value {
	out := make([]*graph.Value, len(values))
	for i, v := range values {
		out[i] = graph.ZerosLike(v)
	}
	return out
}

// forward runs this device's layers on the micro-batch of tick t and keeps their
// input.
func (p *pipeline) forward(t *graph.Value, k *ticks) []*graph.Value {
	number := graph.Sub(t, p.stage())
	batch := p.batch(number)
	first := graph.Equal(p.stage(), p.int(0))
	in := choose(first, p.m.Embed(p.b, p.in, batch).Values(), k.forward)
	slot := graph.Rem(graph.Max(number, p.int(0)), p.int(p.slots))
	for i, v := range in[:len(k.held)] {
		k.held[i] = graph.DynamicUpdateSliceDim(k.held[i], graph.ExpandDims(v, 0), 0, slot)
	}
	out, chosen := p.m.Stage(p.b, p.in, decoder.FlowOf(in), batch)
	if chosen.Tokens != nil {
		now := []*graph.Value{chosen.Tokens, chosen.Dropped}
		for i, v := range choose(p.there(number), now, zerosLike(now)) {
			k.chosen[i] = graph.Add(k.chosen[i], v)
		}
	}
	return out.Values()
}

// head computes the loss of the micro-batch that leaves the last stage, and returns
// the cotangents of its flow.
func (p *pipeline) head(t *graph.Value, k *ticks, used, flow []*graph.Value) []*graph.Value {
	flow = slices.Clone(flow) // where derivatives end: the layers have their own turn
	for i, v := range flow {
		flow[i] = graph.StopGradient(v)
	}
	l := p.m.Head(p.b, p.in, decoder.FlowOf(flow), p.batch(graph.Sub(t, p.int(p.stages.Size-1))))
	now := []*graph.Value{l.Sum, l.Own, l.OwnTokens}
	if l.Aux != nil {
		now = append(now, l.Aux, l.Z)
	}
	for i, v := range now {
		k.sums[i] = graph.Add(k.sums[i], v)
	}
	grads := graph.Grad(objective(l, p.total, p.m.Config.MoE, p.o.Passes), append(slices.Clone(flow), used...)...)
	p.add(k, grads[len(flow):])
	return grads[:len(flow)]
}

// backward takes the cotangents of a micro-batch's flow through this device's
// layers. Those from the head are for the last stage.
func (p *pipeline) backward(t *graph.Value, k *ticks, used, fromHead []*graph.Value) {
	fromLast := graph.Sub(p.int(p.stages.Size-1), p.stage())
	number := graph.Sub(graph.Sub(t, p.int(p.stages.Size-1)), fromLast)
	batch := p.batch(number)
	cts := k.backward
	if fromHead != nil {
		cts = choose(graph.Equal(fromLast, p.int(0)), fromHead, cts)
	}
	cts = choose(p.there(number), cts, zerosLike(cts))
	slot := graph.Rem(graph.Max(number, p.int(0)), p.int(p.slots))
	in := make([]*graph.Value, len(k.held))
	for i, v := range k.held {
		in[i] = graph.StopGradient(graph.Squeeze(graph.DynamicSliceDim(v, 0, slot, 1), 0))
	}
	out, _ := p.m.Stage(p.b, p.in, decoder.FlowOf(in), batch)
	grads := graph.VJP(out.Values(), cts, append(slices.Clone(in), used...))
	p.add(k, grads[len(in):])
	k.backward = grads[:len(in)]

	// What comes out of the first stage's layers goes to the embedding.
	first := graph.Equal(p.stage(), p.int(0))
	ct := choose(first, k.backward[:1], zerosLike(k.backward[:1]))
	p.add(k, graph.VJP(p.m.Embed(p.b, p.in, batch).Values()[:1], ct, used))
}

func (p *pipeline) add(k *ticks, grads []*graph.Value) {
	for i, g := range grads {
		k.grads[i] = graph.Add(k.grads[i], graph.Convert(g, dtype.F32))
	}
}

// send sends a flow on to the next stage, sendBack cotangents to the one before.
// (The ends of the pipeline send each other what neither uses.)
func (p *pipeline) send(k *ticks, flow []*graph.Value) {
	for i, v := range flow {
		k.forward[i] = p.stages.Next(v, 1)
	}
}

func (p *pipeline) sendBack(k *ticks) {
	for i, v := range k.backward {
		k.backward[i] = p.stages.Next(v, -1)
	}
}
