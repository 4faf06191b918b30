package decoder

import (
	"fmt"

	"titan/dtype"
	"titan/graph"
	"titan/kernels"
)

// tiledBlocks is attention by tile kernels. Of documents it wants piece.starts.
type tiledBlocks struct {
	target kernels.Target
	tiles  kernels.AttentionTiles
}

// AttentionTiled says whether the model's attention is by tile kernels, for
// sequences of S tokens, and if not, why. Kernels for TPU take pieces in tiles of
// full lanes.
func (m *Model) AttentionTiled(S int) (tiled bool, why string) {
	o := m.Options
	if o.Kernels == nil || o.Attention.Plain {
		return false, ""
	}
	piece, what := S, ""
	if g := m.Placement.Context(); !g.Alone() {
		piece, what = S/(2*g.Devices()), "chunks of "
	}
	if o.Kernels.Chip != nil && piece%kernels.Unit != 0 {
		return false, fmt.Sprintf("tiles do not divide %s%d tokens, which would have to be a multiple of %d", what, piece, kernels.Unit)
	}
	return true, ""
}

// tiled returns how the attention of whole sequences of S tokens is computed by tile
// kernels, or nil.
func (m *Model) tiled(S int) *tiledBlocks {
	if ok, _ := m.AttentionTiled(S); !ok {
		return nil
	}
	return &tiledBlocks{*m.Options.Kernels, m.Options.Attention.Tiles}
}

// of is the piece as kernels take it.
func (t tiledBlocks) of(p piece) kernels.Attention {
	b, Q, T := p.q.Builder(), p.q.Dim(2), p.k.Dim(1)
	in := kernels.Intervals{Starts: p.starts}
	switch {
	case p.all:
	case p.chunks == nil:
		in.Places = b.Iota(graph.T(dtype.S32, Q), 0)
	default:
		chunk := b.Int(dtype.S32, int64(Q/2))
		at := func(number *graph.Value) *graph.Value {
			return graph.Add(graph.Mul(number, chunk), b.Iota(graph.T(dtype.S32, Q/2), 0))
		}
		in.Places = graph.Concat(0, at(p.chunks[0]), at(p.chunks[1]))
	}
	a := kernels.Attention{Q: p.q, K: p.k, V: p.v, Causal: !p.all, Target: t.target, Tiles: t.tiles}
	a.Lo, a.Hi = kernels.KeyIntervals(b, Q, T, in)
	return a
}

func (t tiledBlocks) forward(p piece, as graph.DType) (out, lse *graph.Value) {
	return t.of(p).Forward(as)
}

func (t tiledBlocks) backward(p piece, lse, delta, ct *graph.Value) []*graph.Value {
	dq, dk, dv := t.of(p).Backward(lse, delta, ct)
	return []*graph.Value{dq, dk, dv}
}
