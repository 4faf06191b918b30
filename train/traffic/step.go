package traffic

import (
	"math"
	"slices"
	"strings"

	"titan/models/decoder"
	"titan/parallel"
)

// Step is a training step: a model, how its parameters lie, and the batch.
type Step struct {
	Model   decoder.Config
	Options decoder.Options
	Plan    *parallel.Plan

	Rows   int // sequences of a pass over all devices
	Passes int // passes whose gradients are added up, or micro-batches of a pipeline
	SeqLen int
	// Hoisted: what every pass gathers in the same way is gathered once, as XLA's CPU
	// compiler does.
	Hoisted bool
	// Rounds in which tokens go to experts on other devices; 0 is 1, which is enough
	// as long as no pair of devices has more for each other than the buffers hold.
	Rounds int
}

// sheet is the step's figures, in the letters of docs/parallelism.md.
type sheet struct {
	Step
	out []Transfer

	pp, cp, tp, ep int
	c, r           int64 // bytes of an element in which is computed, and reduced
	M              int64 // passes
	forward, again int64 // passes of a stage forward: those that count, and those before a pipeline's backward pass
	backward       int64
	B, T           int64 // sequences of a device, and their tokens after Enter
	D              int64
}

// Transfers returns what a device exchanges in a step, without scalars, and without
// what the optimizer does. Layers are looped over (Options.Unroll is off), attention
// is of whole blocks, and products are not in 8-bit floats.
func (s Step) Transfers() []Transfer {
	m := s.Plan.Mesh()
	size := func(axis string) int { return max(1, m.AxisSize(axis)) }
	o := s.Plan.Options()
	x := sheet{
		Step: s, pp: size(parallel.AxisPipeline), cp: size(parallel.AxisContext), tp: size(parallel.AxisTensor), ep: size(parallel.AxisExpert),
		c: int64(o.Compute.Size()), r: int64(o.Reduce.Size()), M: int64(max(1, s.Passes)), D: int64(s.Model.Dim),
	}
	x.B, x.T = int64(s.Rows/s.Plan.BatchDevices()), int64(s.SeqLen/x.cp)
	x.forward, x.backward = x.M+int64(x.pp)-1, x.M+int64(x.pp)-1
	if x.pp > 1 {
		x.again = x.backward
	}
	x.parameters()
	x.embedding()
	x.layers()
	x.head()
	x.stages()
	return x.out
}

// EmbedsByColumns reports whether devices look up columns of the embedding; see
// decoder.EmbedsByColumns.
func (s Step) EmbedsByColumns() bool {
	m := s.Plan.Mesh()
	cp, tp := max(1, m.AxisSize(parallel.AxisContext)), max(1, m.AxisSize(parallel.AxisTensor))
	tokens := s.Rows / s.Plan.BatchDevices() * s.SeqLen / cp
	return decoder.EmbedsByColumns(s.Plan.Columns("embed"), s.Model.Dim, s.Model.VocabSize/tp, tokens)
}

// add notes count collectives of one array of so many bytes.
func (x *sheet) add(what, kind string, count, bytes int64, axes ...string) {
	axes = x.present(axes)
	if len(axes) > 0 && count > 0 && bytes > 0 {
		x.out = append(x.out, Transfer{what, kind, axes, count, count * bytes})
	}
}

// present returns those of axes along which there are several devices, in the order
// of the mesh.
func (x *sheet) present(axes []string) []string {
	var out []string
	for _, a := range x.Plan.Mesh().Axes() {
		if a.Size > 1 && slices.Contains(axes, a.Name) {
			out = append(out, a.Name)
		}
	}
	return out
}

const (
	allGather     = "all-gather"
	reduceScatter = "reduce-scatter"
	allReduce     = "all-reduce"
	allToAll      = "all-to-all"
	permute       = "collective-permute"
)

// parameters: FSDP gathers a matrix where it is used and scatters its gradient; HSDP
// sums what was scattered over the copies, once a step.
func (x *sheet) parameters() {
	for _, name := range x.Plan.Names() {
		u := x.Plan.Use(name)
		if name == decoder.RouterBias {
			continue // no gradient, and whole
		}
		if !u.Matrix {
			x.add("gradients of vectors", allReduce, 1, u.Stored*4, u.Copies...)
			continue
		}
		gathers, scatters := x.uses(name, u)
		// One collective is of one layer's row.
		rows := int64(1)
		if u.Stack && !u.Kept {
			rows = x.rows(name)
		}
		x.add("parameters", allGather, gathers*rows, u.Whole/rows*x.c, u.Gather...)
		x.add("gradients", reduceScatter, scatters*rows, u.Whole/rows*x.r, u.Gather...)
		copies := x.r
		if x.M > 1 { // the sum of the passes
			copies = 4
		}
		x.add("gradients of copies", allReduce, 1, u.Stored*copies, u.Copies...)
	}
}

// uses returns how often a matrix, or a stack's every row, is gathered in a step, and
// its gradient scattered.
func (x *sheet) uses(name string, u parallel.Use) (gathers, scatters int64) {
	M := x.M
	if x.Hoisted {
		M = 1
	}
	lookups, sums := x.forward-x.M+M, x.backward // of the embedding, whose derivative needs positions only
	if x.EmbedsByColumns() {
		lookups, sums = 0, 0
	}
	switch {
	case u.Kept && x.pp > 1:
		return 1, 1
	case u.Kept:
		return M, x.M
	case name == "embed" && x.Model.TieEmbeddings:
		return lookups + M, sums + x.M
	case name == "embed":
		return lookups, sums
	case name == "output": // backward follows at once
		return M, x.M
	}
	if x.Options.Remat.Keeps(decoder.NameWeights) && !strings.HasPrefix(name, "layers.experts.") {
		return x.forward + x.again, x.backward
	}
	return x.forward + x.again + x.backward, x.backward
}

// rows returns how many rows of a stack a device has.
func (x *sheet) rows(name string) int64 {
	for _, p := range x.Model.Params() {
		if p.Name == name {
			return int64(p.Shape[0] / x.pp)
		}
	}
	return 1
}

// embedding: by columns, a device's tokens go to all that have columns, and rows and
// their cotangents between them. With tp every device looks up its part of the
// vocabulary.
func (x *sheet) embedding() {
	if x.EmbedsByColumns() {
		g := x.Plan.Columns("embed")
		x.add("tokens of the embedding", allGather, x.M, int64(g.Devices())*x.B*x.T*4, g.Axes...)
		x.add("rows of the embedding", allToAll, 2*x.M, x.B*x.T/int64(x.tp)*x.D*x.c, g.Axes...)
	}
	x.add("embedding", reduceScatter, x.forward, x.B*x.T*x.D*x.c, parallel.AxisTensor)
	x.add("embedding", allGather, x.backward, x.B*x.T*x.D*x.c, parallel.AxisTensor)
}

// kind is some of a device's layers that exchange the same.
type kind struct {
	sparse, checkpointed bool
	n                    int64
}

func (x *sheet) kinds() []kind {
	keep, every := x.Options.Remat.Policy()
	n := map[kind]int64{}
	for i := range x.Model.Layers / x.pp {
		n[kind{sparse: x.Model.Sparse(i), checkpointed: keep != nil && i%every == 0}]++
	}
	var out []kind
	for k, count := range n {
		k.n = count
		out = append(out, k)
	}
	return out
}

// layers: with tp, a layer's two blocks bring tokens together and take them apart
// again, and backward the other way round.
func (x *sheet) layers() {
	a := x.Options.Remat
	for _, k := range x.kinds() {
		forward, backward := k.n*(x.forward+x.again), k.n*x.backward
		var recomputed int64
		if k.checkpointed {
			recomputed = backward
		}
		unless := func(name string) int64 {
			if a.Keeps(name) {
				return 0
			}
			return recomputed
		}
		tokens := x.B * x.T * x.D * x.c
		x.add("tokens", allGather, 2*(forward+recomputed+backward), tokens, parallel.AxisTensor)
		x.add("tokens", reduceScatter, 2*(forward+backward)+unless(decoder.NameResid), tokens, parallel.AxisTensor)
		x.attention(forward, unless(decoder.NameAttnOut), backward)
		if k.sparse {
			x.experts(forward, recomputed, backward, unless)
		}
	}
	if moe := x.Model.MoE; moe != nil {
		sparse, _ := x.Model.SparseLayers()
		x.add("load of experts", allReduce, x.forward, int64(len(sparse)/x.pp*moe.Experts)*4, tokenAxes()...)
	}
}

// tokenAxes are those along which devices have different tokens.
func tokenAxes() []string {
	return []string{parallel.AxisReplicate, parallel.AxisShard, parallel.AxisExpert, parallel.AxisContext, parallel.AxisTensor}
}

// attention: with cp, keys and values go round the ring of n devices n-1 places, and
// backward once more with their gradients, in f32, behind them, which go on to the
// place where they belong; or they are gathered, and their gradients scattered.
func (x *sheet) attention(forward, recomputed, backward int64) {
	heads := int64(max(1, x.Model.KVHeads/x.tp))
	n, elements := int64(x.cp), x.B*heads*x.T*int64(x.Model.HeadDim)
	if x.Options.Attention.Context == decoder.ContextAllGather {
		x.add("keys and values", allGather, 2*(forward+recomputed+backward), n*elements*x.c, parallel.AxisContext)
		x.add("gradients of keys and values", reduceScatter, 2*backward, n*elements*4, parallel.AxisContext)
		return
	}
	x.add("keys and values", permute, 2*(n-1)*(forward+recomputed+backward), elements*x.c, parallel.AxisContext)
	x.add("gradients of keys and values", permute, 2*n*backward, elements*4, parallel.AxisContext)
}

// experts: with ep, C rows go to their experts' devices and back; backward rows and
// their cotangents go there, and gradients back. With tp, devices that share the
// experts' width also need to know the choices of each other's tokens. Experts with a
// capacity have as much room for the rows of each device, forward and backward.
func (x *sheet) experts(forward, recomputed, backward int64, unless func(string) int64) {
	moe := x.Model.MoE
	N, k := x.B*x.T, int64(moe.TopK)
	x.add("choices of experts", allGather, 2*(forward+recomputed), N*k*4, parallel.AxisTensor)
	x.add("choices of experts", reduceScatter, backward, N*k*4, parallel.AxisTensor)
	ep := parallel.AxisExpert
	if moe.CapacityFactor > 0 {
		room := min(N*k, max(1, int64(math.Ceil(moe.CapacityFactor*float64(N*k)/float64(moe.Experts)))))
		again := unless(decoder.NameExpertIn) + unless(decoder.NameExpertOut)
		x.add("rows of experts", allToAll, 2*forward+again+2*backward, int64(moe.Experts)*room*x.D*x.c, ep)
		return
	}
	x.add("numbers of rows", allToAll, forward+unless(decoder.NameRouter), int64(moe.Experts)*4, ep)
	rounds, C := int64(max(1, x.Rounds)), int64(x.ep*decoder.ExpertRoom(int(N*k), x.ep, x.Options.ExpertBuffer))
	x.add("rows of experts", allToAll, 2*rounds*forward, C*x.D*x.c, ep)
	x.add("rows of experts", allToAll, 3*rounds*backward, C*x.D*x.c, ep)
	x.add("shares of rows", allToAll, 2*rounds*backward, C*4, ep)
}

// head: with tp, every device has a part of the vocabulary and three figures a token
// are brought together; stages share the tokens of the last one.
func (x *sheet) head() {
	pp, tp := parallel.AxisPipeline, parallel.AxisTensor
	share := x.T / int64(x.pp)
	x.add("tokens of the head", reduceScatter, x.M, x.B*x.T/int64(x.tp)*x.D*x.c, pp)
	x.add("tokens of the head", allGather, x.M, x.B*x.T/int64(x.tp)*x.D*x.c, pp)
	x.add("tokens of the head", allGather, x.M, x.B*share*x.D*x.c, tp)
	x.add("tokens of the head", reduceScatter, x.M, x.B*share*x.D*x.c, tp)
	chunks := min(max(1, int64(x.Options.LossChunks)), share)
	x.add("softmax over the vocabulary", allReduce, 3*x.M*chunks, x.B*((share+chunks-1)/chunks)*4, tp)
	if moe := x.Model.MoE; moe != nil {
		x.add("losses of routers", allReduce, 2*x.M, int64(moe.Experts)*4, tokenAxes()...)
		x.add("losses of routers", allReduce, 2*x.M, int64(moe.Experts)*4, pp)
	}
}

// stages: in a pipeline, tokens go from stage to stage and their cotangents back.
func (x *sheet) stages() {
	back := x.backward
	if x.pp == 2 {
		back-- // what the last tick would send is not needed
	}
	pp := parallel.AxisPipeline
	tokens := x.B * x.T / int64(x.tp) * x.D * x.c
	x.add("tokens", permute, x.forward, tokens, pp)
	x.add("cotangents of tokens", permute, back, tokens, pp)
	if moe := x.Model.MoE; moe != nil {
		x.add("load of experts", permute, 2*x.forward, int64(moe.Experts)*4, pp)
		x.add("cotangents of the load", permute, back, int64(moe.Experts)*4, pp)
		sparse, _ := x.Model.SparseLayers()
		x.add("load of experts", allGather, 1, int64(len(sparse)*moe.Experts)*4, pp)
	}
}
