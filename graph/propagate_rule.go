package graph

import "slices"

// rule says how the dimensions of an op's values belong together (Shardy's
// sharding rule). The op iterates over factors; every dimension of an operand or
// result runs over some of them, major to minor. A dimension without factors
// cannot be split while the op runs.
type rule struct {
	sizes []int     // of the factors
	sum   []bool    // factors that are summed over: splitting them gives partial sums
	group []int     // factors of one group cannot be split over one axis
	maps  [][][]int // operands, then results: the factors of each dimension

	level, seen int // when propagation came by last
}

func newRule(op *Op) *rule {
	r := &rule{level: -1, seen: -1}
	for _, v := range op.operands {
		r.maps = append(r.maps, make([][]int, v.Rank()))
	}
	for _, v := range op.results {
		r.maps = append(r.maps, make([][]int, v.Rank()))
	}
	return r
}

// factor makes a new factor.
func (r *rule) factor(size int) int {
	r.sizes, r.sum, r.group = append(r.sizes, size), append(r.sum, false), append(r.group, 0)
	return len(r.sizes) - 1
}

// on names a dimension of one of an op's values.
type on struct{ value, dim int }

// link makes a factor of the given dimensions.
func (r *rule) link(size int, dims ...on) int {
	f := r.factor(size)
	for _, d := range dims {
		r.maps[d.value][d.dim] = []int{f}
	}
	return f
}

// Levels of propagation: which kinds of op take part, in which directions.
const levels = 3

// directions says whether splits spread forward (from operands to results) and
// backward over ops of kind k.
func directions(k opKind, level int) (forward, backward bool) {
	switch {
	case k == opBroadcast:
		return level >= 2, level >= 1
	case k <= opSelect, isIdentity(k), k == opReshape, k == opTranspose, k == opThreefry:
		return true, true
	}
	return level >= 1, level >= 1
}

// isIdentity reports whether results are the operands, with something said
// about them.
func isIdentity(k opKind) bool {
	switch k {
	case opBarrier, opConstrain, opName, opToMemory, opKept, opStopGradient, opPvary:
		return true
	}
	return false
}

// ruleOf makes the rule of an op without regions. Ops without a rule of their
// own need whole operands.
func ruleOf(op *Op) *rule {
	r := newRule(op)
	res := len(op.operands) // index of the first result
	switch k := op.kind; {
	case k == opBarrier:
		for i, v := range op.results {
			for d, n := range v.typ.Shape {
				r.group[r.link(n, on{i, d}, on{res + i, d})] = i // they have nothing to do with each other
			}
		}
	case k <= opSelect, isIdentity(k), k == opThreefry, k == opAllReduce, k == opPermute:
		r.alike(op, nil)
	case k == opBroadcast:
		dims := op.attr.(broadcastAttr).dims
		for d, n := range op.results[0].typ.Shape {
			f := r.link(n, on{res, d})
			if i := slices.Index(dims, d); i >= 0 && op.operands[0].typ.Shape[i] == n {
				r.maps[0][i] = []int{f}
			}
		}
	case k == opReshape:
		r.reshape(op.operands[0].typ.Shape, op.results[0].typ.Shape)
	case k == opTranspose:
		for d, from := range op.attr.([]int) {
			r.link(op.results[0].typ.Shape[d], on{0, from}, on{res, d})
		}
	case k == opReverse:
		r.alike(op, op.attr.([]int))
	case k == opSlice, k == opPad, k == opConcat, k == opDynamicSlice, k == opDynamicUpdateSlice, k == opAllGather, k == opReduceScatter, k == opAllToAll:
		r.sameSize(op)
	case k == opDot:
		r.dot(op)
	case k == opReduce:
		at, d := op.attr.(reduceAttr), 0
		for i, n := range op.operands[0].typ.Shape {
			if slices.Contains(at.dims, i) {
				r.sum[r.link(n, on{0, i})] = true
				continue
			}
			r.link(n, on{0, i}, on{res, d})
			d++
		}
	case k == opArgReduce:
		at, d := op.attr.(argReduceAttr), 0
		for i, n := range op.operands[0].typ.Shape {
			if i != at.dim {
				r.link(n, on{0, i}, on{res, d})
				d++
			}
		}
	case k == opCumsum:
		r.alike(op, []int{op.attr.(cumsumAttr).dim})
	case k == opSort:
		r.alike(op, []int{op.attr.(sortAttr).dim})
	case k == opGather:
		at := op.attr.(gatherAttr)
		r.index(op, at.dims, 0, 1, res)
		for _, d := range at.dims.CollapsedSliceDims {
			// Each device looks up what it holds, and the results are added.
			if slices.Contains(at.dims.StartIndexMap, d) {
				r.sum[r.link(op.operands[0].typ.Shape[d], on{0, d})] = true
			}
		}
	case k == opScatter:
		at := op.attr.(scatterAttr)
		r.index(op, at.dims, 0, 1, 2)
		for d, n := range op.operands[0].typ.Shape {
			if r.maps[0][d] == nil {
				r.link(n, on{0, d}) // each device keeps the updates of what it holds
			}
			for i := range op.results {
				r.maps[res+i][d] = r.maps[0][d]
			}
		}
		for _, d := range at.dims.batchDims(op.operands[2].Rank()) {
			for _, f := range r.maps[2][d] {
				if slices.ContainsFunc(r.maps[0], func(fs []int) bool { return slices.Contains(fs, f) }) {
					continue // a batching dimension
				}
				if r.sum[f] = at.kind == CombineAdd; !r.sum[f] {
					r.drop(f)
				}
			}
		}
	}
	return r
}

// drop takes a factor out of all dimensions.
func (r *rule) drop(f int) {
	for _, dims := range r.maps {
		for d, fs := range dims {
			if slices.Contains(fs, f) {
				dims[d] = nil
			}
		}
	}
}

// alike links the dimensions of all values that have the first result's shape,
// but for those in whole.
func (r *rule) alike(op *Op, whole []int) {
	shape := op.results[0].typ.Shape
	for d, n := range shape {
		if slices.Contains(whole, d) {
			continue
		}
		f := r.factor(n)
		for i, v := range slices.Concat(op.operands, op.results) {
			if slices.Equal(v.typ.Shape, shape) {
				r.maps[i][d] = []int{f}
			}
		}
	}
}

// sameSize links the dimensions that an op leaves as they are, which it shows
// by leaving their size. (Where a slice begins elsewhere its size differs.)
func (r *rule) sameSize(op *Op) {
	out := op.results[0].typ.Shape
	for d, n := range out {
		if at, ok := op.attr.(collectiveAttr); ok && op.kind == opAllToAll && (d == at.dim || d == at.dim2) {
			continue // split and joined again
		}
		if op.kind == opConcat && d == op.attr.(int) {
			continue
		}
		f := r.factor(n)
		values := append([]*Value{op.results[0]}, op.operands...)
		index := append([]int{len(op.operands)}, seq(0, len(op.operands))...)
		if op.kind == opDynamicUpdateSlice {
			// Where the update is smaller, every device writes what it holds.
			values[0], values[1] = op.operands[0], op.results[0]
			index[0], index[1] = 0, len(op.operands)
			r.maps[0][d] = []int{f}
		}
		for i, v := range values {
			if v.Rank() == len(out) && v.typ.Shape[d] == n {
				r.maps[index[i]][d] = []int{f}
			}
		}
	}
}

func (r *rule) dot(op *Op) {
	at := op.attr.(dotAttr)
	x, y := op.operands[0], op.operands[1]
	d := 0
	for i, l := range at.lhsBatch {
		r.link(x.typ.Shape[l], on{0, l}, on{1, at.rhsBatch[i]}, on{2, d})
		d++
	}
	for _, l := range without(seq(0, x.Rank()), slices.Concat(at.lhsBatch, at.lhsContract)...) {
		r.link(x.typ.Shape[l], on{0, l}, on{2, d})
		d++
	}
	for _, l := range without(seq(0, y.Rank()), slices.Concat(at.rhsBatch, at.rhsContract)...) {
		r.link(y.typ.Shape[l], on{1, l}, on{2, d})
		d++
	}
	for i, l := range at.lhsContract {
		r.sum[r.link(x.typ.Shape[l], on{0, l}, on{1, at.rhsContract[i]})] = true
	}
}

// index links the dimensions of a gather's operand, indices and result, or of a
// scatter's operand, indices and updates.
func (r *rule) index(op *Op, dims GatherDims, x, indices, window int) {
	values := slices.Concat(op.operands, op.results)
	rank := values[window].Rank()
	for i, o := range dims.window(values[x].Rank()) {
		if w := dims.OffsetDims[i]; values[x].typ.Shape[o] == values[window].typ.Shape[w] {
			r.link(values[x].typ.Shape[o], on{x, o}, on{window, w})
		}
	}
	batch := without(seq(0, values[indices].Rank()), dims.IndexVectorDim)
	for i, w := range dims.batchDims(rank) {
		f := r.link(values[window].typ.Shape[w], on{indices, batch[i]}, on{window, w})
		if j := slices.Index(dims.StartIndicesBatchingDims, batch[i]); j >= 0 {
			r.maps[x][dims.OperandBatchingDims[j]] = []int{f}
		}
	}
}

// reshape finds the factors that dimensions before and after have in common:
// [6, 4] → [2, 12] iterates over 2, 3 and 4. Dimensions that have no common
// divisor cannot be split, up to where dimensions end together again.
func (r *rule) reshape(in, out []int) {
	if product(in) == 0 {
		return
	}
	i, j := 0, 0 // next dimensions
	a, b := 1, 1 // what is left of the current ones
	for {
		for a == 1 && i < len(in) {
			a = in[i]
			i++
		}
		for b == 1 && j < len(out) {
			b = out[j]
			j++
		}
		if a == 1 || b == 1 {
			return // the elements are equal in number: both are used up
		}
		if g := gcd(a, b); g > 1 {
			f := r.factor(g)
			r.maps[0][i-1] = append(r.maps[0][i-1], f)
			r.maps[1][j-1] = append(r.maps[1][j-1], f)
			a, b = a/g, b/g
		}
		if a == 1 || b == 1 {
			continue
		}
		for a != b {
			if a < b {
				a *= in[i]
				i++
			} else {
				b *= out[j]
				j++
			}
		}
		a, b = 1, 1
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
