package parallel

import (
	"fmt"
	"slices"
	"strings"

	"titan/sharding"
)

// Names of the mesh axes.
const (
	AxisPipeline  = "pp"           // stages of layers
	AxisReplicate = "dp_replicate" // copies of sharded parameters
	AxisShard     = "dp_shard"     // parameters, gradients and optimizer state are sharded
	AxisExpert    = "ep"           // experts are shared out; for everything else as dp_shard
	AxisContext   = "cp"           // the tokens of a sequence are shared out
	AxisTensor    = "tp"           // heads, feed-forward width and vocabulary are shared out
)

// AxisNames lists the axes of a mesh from the outermost to the innermost, whose
// devices are closest to each other: what exchanges most comes last.
func AxisNames() []string {
	return []string{AxisPipeline, AxisReplicate, AxisShard, AxisExpert, AxisContext, AxisTensor}
}

// batchAxes are the axes over which the sequences of a batch are split.
var batchAxes = []string{AxisReplicate, AxisShard, AxisExpert}

// tensorAxes are the logical axes that tp splits.
var tensorAxes = []string{"heads", "kv_heads", "mlp", "expert_mlp", "vocab"}

// shardRules is the order in which logical axes are considered for FSDP's split:
// the first that a parameter has and whose size divides is taken. Dimensions that
// tp splits come later.
// Experts come first: a device's are one piece of memory, so that nothing is copied
// to gather them or to scatter their gradients.
var shardRules = []string{"expert", "embed", "expert_mlp", "mlp", "vocab", "heads", "kv_heads", "head_dim"}

type placed struct {
	Param
	spec sharding.Spec
	// shard are the axes over which dimension dim is gathered for use (dim -1: it
	// is not), rest those along which devices hold equal copies.
	shard, rest []string
	dim         int
	note        string // why it is not gathered
	// heads is the dimension of key/value heads of which there are fewer than
	// devices in tp: all are stored, and the own one is used. -1 for none.
	heads int
}

// layers is 1 for a stack over layers and 0 for any other parameter: the number
// of dimensions that a layer's row lacks.
func (x Param) layers() int {
	if len(x.Axes) > 0 && x.Axes[0] == "layer" {
		return 1
	}
	return 0
}

func (p *Plan) place(x Param) (placed, error) {
	at := placed{Param: x, dim: -1, heads: -1, spec: sharding.Replicated(len(x.Shape))}
	split := func(dim int, axis string) error {
		n := p.size(axis)
		if n == 1 {
			return nil
		}
		if x.Shape[dim]%n != 0 {
			return fmt.Errorf("parallel: dimension %d (%s) of parameter %s, of size %d, does not divide over the %d devices of %s", dim, x.Axes[dim], x.Name, x.Shape[dim], n, axis)
		}
		at.spec.Dims[dim] = []string{axis}
		return nil
	}
	data := []string{AxisShard, AxisExpert, AxisContext}
	if x.layers() == 0 {
		data = append(data, AxisPipeline)
	} else if err := split(0, AxisPipeline); err != nil {
		return at, err
	}
	if len(x.Shape)-x.layers() < 2 {
		at.rest = p.others(at.spec)
		if p.size(data...) > 1 {
			at.note = "vectors, kept whole"
		}
		return at, nil
	}
	for dim, logical := range x.Axes {
		tp := p.size(AxisTensor)
		switch {
		case logical == "expert":
			if err := split(dim, AxisExpert); err != nil {
				return at, err
			}
			data = slices.DeleteFunc(data, func(a string) bool { return a == AxisExpert })
		case logical == "kv_heads" && x.Shape[dim] < tp:
			if tp%x.Shape[dim] != 0 {
				return at, fmt.Errorf("parallel: %d key/value heads of parameter %s can neither be shared out over the %d devices of tp nor be the same number of times on them", x.Shape[dim], x.Name, tp)
			}
			at.heads = dim
		case slices.Contains(tensorAxes, logical):
			if err := split(dim, AxisTensor); err != nil {
				return at, err
			}
		}
	}
	at.shard = p.present(data...)
	n := p.size(at.shard...)
	for _, logical := range shardRules {
		d := slices.Index(x.Axes, logical)
		if d < 0 || n == 1 || x.Shape[d]%(n*p.size(at.spec.Dims[d]...)) != 0 {
			continue
		}
		at.dim = d
		at.spec.Dims[d] = append(slices.Clone(at.spec.Dims[d]), at.shard...)
		break
	}
	if at.dim < 0 {
		at.shard = nil
		if n > 1 {
			at.note = fmt.Sprintf("no dimension of %v divides by the %d devices of %s, kept whole", x.Shape, n, strings.Join(p.present(data...), " × "))
		}
	}
	at.rest = p.others(at.spec)
	return at, nil
}

// others returns the axes of the mesh that a spec does not use.
func (p *Plan) others(s sharding.Spec) []string {
	used := s.Axes()
	return slices.DeleteFunc(p.present(AxisNames()...), func(a string) bool { return slices.Contains(used, a) })
}
