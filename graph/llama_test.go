package graph_test

import (
	"fmt"

	. "titan/graph"
)

// llama is a decoder in the shape of Llama, small enough for tests, written as
// model code would be: the yardstick for memory, compile time and tracing.
type llama struct {
	vocab, dim, ffn, layers, heads, kv, headDim int
	seq, batch                                  int
	dtype                                       DType
	scan                                        bool
	remat                                       *Policy
	shard                                       func(name string) PortOption
	adamw                                       bool // clip to norm 1 and AdamW instead of SGD
}

type decoderLayer struct {
	norm1, wq, wk, wv, wo, norm2, gate, up, down *Value
}

func (c llama) layerShapes() []struct {
	name  string
	shape []int
} {
	return []struct {
		name  string
		shape []int
	}{
		{"norm1", []int{c.dim}},
		{"wq", []int{c.dim, c.heads, c.headDim}}, {"wk", []int{c.dim, c.kv, c.headDim}}, {"wv", []int{c.dim, c.kv, c.headDim}},
		{"wo", []int{c.heads, c.headDim, c.dim}},
		{"norm2", []int{c.dim}},
		{"gate", []int{c.dim, c.ffn}}, {"up", []int{c.dim, c.ffn}}, {"down", []int{c.ffn, c.dim}},
	}
}

func rmsNorm(x, w *Value) *Value {
	f := Convert(x, F32)
	r := Rsqrt(AddScalar(Mean(Square(f), -1), 1e-5))
	return Convert(Mul(Mul(f, ExpandDims(r, -1)), Convert(w, F32)), x.DType())
}

func rope(x, cos, sin *Value) *Value {
	h := Split(x, -1, 2)
	turned := Concat(-1, Neg(h[1]), h[0])
	return Convert(Add(Mul(Convert(x, F32), cos), Mul(Convert(turned, F32), sin)), x.DType())
}

func (c llama) layer(x *Value, l decoderLayer, cos, sin, mask *Value) *Value {
	h := rmsNorm(x, l.norm1)
	q := rope(Einsum("bsd,dhk->bshk", h, l.wq), cos, sin)
	k := rope(Einsum("bsd,dhk->bshk", h, l.wk), cos, sin)
	v := Einsum("bsd,dhk->bshk", h, l.wv)
	// Query head h reads key/value head h / (heads / kv).
	group := c.heads / c.kv
	q = Reshape(q, x.Dim(0), x.Dim(1), c.kv, group, c.headDim)
	s := Einsum("bqhgd,bkhd->bhgqk", q, k, As(F32))
	s = Select(mask, MulScalar(s, 0.125), x.Builder().Scalar(F32, -1e30))
	p := Convert(Softmax(s, -1), x.DType())
	o := Reshape(Einsum("bhgqk,bkhd->bqhgd", p, v), x.Dim(0), x.Dim(1), c.heads, c.headDim)
	x = Add(x, Einsum("bshk,hkd->bsd", Name(o, "attn_out"), l.wo))
	h = rmsNorm(x, l.norm2)
	g := Mul(Silu(Einsum("bsd,df->bsf", h, l.gate)), Einsum("bsd,df->bsf", h, l.up))
	return Add(x, Einsum("bsf,fd->bsd", g, l.down))
}

// step records loss, gradient and an update of the donated parameters.
func (c llama) step(b *Builder) error {
	shard := c.shard
	if shard == nil {
		shard = func(string) PortOption { return nil }
	}
	var params []*Value
	var names []string
	param := func(name string, shape ...int) *Value {
		p := b.Input(name, T(F32, shape...), Donated(), shard(name))
		params, names = append(params, p), append(names, name)
		return p
	}
	embed, head, norm := param("embed", c.vocab, c.dim), param("head", c.dim, c.vocab), param("norm", c.dim)
	var layers []decoderLayer
	if c.scan {
		layers = make([]decoderLayer, 1)
	} else {
		layers = make([]decoderLayer, c.layers)
	}
	for i := range layers {
		var ws []*Value
		for _, s := range c.layerShapes() {
			shape := s.shape
			if c.scan {
				shape = append([]int{c.layers}, shape...)
			}
			ws = append(ws, param(fmt.Sprintf("layers.%d.%s", i, s.name), shape...))
		}
		layers[i] = decoderLayer{ws[0], ws[1], ws[2], ws[3], ws[4], ws[5], ws[6], ws[7], ws[8]}
	}
	tokens := b.Input("tokens", T(S32, c.batch, c.seq), shard("tokens"))
	labels := b.Input("labels", T(S32, c.batch, c.seq), shard("labels"))

	pos := Convert(b.Iota(T(S32, c.seq, 1), 0), F32)
	freq := Exp(MulScalar(Convert(Rem(b.Iota(T(S32, 1, c.headDim), 1), b.Int(S32, int64(c.headDim/2))), F32), -0.1))
	angle := Reshape(Mul(pos, freq), c.seq, 1, c.headDim)
	cos, sin := Cos(angle), Sin(angle)
	mask := GreaterEqual(b.Iota(T(S32, c.seq, c.seq), 0), b.Iota(T(S32, c.seq, c.seq), 1))

	cast := func(v *Value) *Value { return Convert(v, c.dtype) }
	x := Einsum("bsv,vd->bsd", OneHot(tokens, c.vocab, c.dtype), cast(embed))
	body := func(x *Value, l decoderLayer) *Value {
		run := func() []*Value {
			l := decoderLayer{l.norm1, cast(l.wq), cast(l.wk), cast(l.wv), cast(l.wo), l.norm2, cast(l.gate), cast(l.up), cast(l.down)}
			return []*Value{c.layer(x, l, cos, sin, mask)}
		}
		if c.remat != nil {
			return b.Checkpoint(*c.remat, run)[0]
		}
		return run()[0]
	}
	if c.scan {
		l := layers[0]
		out, _ := b.Scan([]*Value{x}, []*Value{l.norm1, l.wq, l.wk, l.wv, l.wo, l.norm2, l.gate, l.up, l.down}, func(cs, r []*Value) ([]*Value, []*Value) {
			return []*Value{body(cs[0], decoderLayer{r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8]})}, nil
		})
		x = out[0]
	} else {
		for _, l := range layers {
			x = body(x, l)
		}
	}
	logits := Einsum("bsd,dv->bsv", rmsNorm(x, norm), cast(head), As(F32))
	nll := Sub(LogSumExp(logits, -1), Sum(Mul(logits, OneHot(labels, c.vocab, F32)), -1))
	loss := Mean(nll)
	grads := Grad(loss, params...)
	b.Output("loss", loss)
	if !c.adamw {
		for i, p := range params {
			b.Output(names[i], Sub(p, MulScalar(grads[i], 0.1)), Into(p))
		}
		return nil
	}
	count := b.Input("count", T(F32))
	square := b.Scalar(F32, 0)
	for _, g := range grads {
		square = Add(square, Sum(Square(g)))
	}
	clip := Min(b.Scalar(F32, 1), Rsqrt(AddScalar(square, 1e-12)))
	power := func(beta float64) *Value { return Sub(b.Scalar(F32, 1), Pow(b.Scalar(F32, beta), count)) }
	c1, c2 := power(0.9), power(0.95)
	for i, p := range params {
		mu := b.Input(names[i]+".mu", p.Type(), Donated(), shard(names[i]))
		nu := b.Input(names[i]+".nu", p.Type(), Donated(), shard(names[i]))
		g := Mul(grads[i], clip)
		mu2 := Add(MulScalar(mu, 0.9), MulScalar(g, 0.1))
		nu2 := Add(MulScalar(nu, 0.95), MulScalar(Square(g), 0.05))
		update := Add(Div(Div(mu2, c1), AddScalar(Sqrt(Div(nu2, c2)), 1e-8)), MulScalar(p, 0.1))
		b.Output(names[i], Sub(p, MulScalar(update, 3e-4)), Into(p))
		b.Output(names[i]+".mu", mu2, Into(mu))
		b.Output(names[i]+".nu", nu2, Into(nu))
	}
	return nil
}
