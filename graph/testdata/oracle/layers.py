"""Writes layers.json: values and gradients of layers, losses and optimisers by
JAX 0.10.2 in float64, with its own automatic differentiation. Run once:
python layers.py > layers.json

Element k of argument i of a case is sin((k+1)*(i+1))*scale (oracle_test.go says
the same); integer arguments are given in the file. The gradients are those of
the sum of the results, weighted with cos(k+1) for element k."""
import json
import jax, jax.numpy as jnp, numpy as np
from jax import lax
jax.config.update("jax_enable_x64", True)

cases = {}

def case(name, f, *shapes, ints=(), scale=1.0):
    """f takes the float arguments of the given shapes, then the integer ones."""
    floats = [np.sin((np.arange(np.prod(s)) + 1.0) * (i + 1)).reshape(s) * scale for i, s in enumerate(shapes)]
    ints = [np.array(i, np.int32) for i in ints]
    def loss(xs):
        outs = f(*xs, *ints)
        outs = outs if isinstance(outs, tuple) else (outs,)
        total = sum(jnp.sum(o * jnp.cos(jnp.arange(o.size) + 1.0).reshape(o.shape)) for o in outs)
        return total, outs
    (_, outs), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(floats)
    flat = lambda x: [float("%.14g" % v) for v in np.asarray(x, np.float64).reshape(-1)]
    cases[name] = {
        "shapes": [list(s) for s in shapes], "scale": scale,
        "ints": [{"shape": list(i.shape), "data": [int(v) for v in i.reshape(-1)]} for i in ints],
        "outs": [{"shape": list(o.shape), "data": flat(o)} for o in outs],
        "grads": [flat(g) for g in grads],
    }

# Norms.
def rms_norm(x, w): return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * w
def layer_norm(x, w, b):
    m = x.mean(-1, keepdims=True)
    return (x - m) / jnp.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * w + b
case("rms_norm", rms_norm, (2, 3, 8), (8,))
case("layer_norm", layer_norm, (2, 3, 8), (8,), (8,))

# Activations and feed-forward layers.
case("gelu", lambda x: jax.nn.gelu(x, approximate=False), (3, 5), scale=3)
case("gelu_tanh", lambda x: jax.nn.gelu(x, approximate=True), (3, 5), scale=3)
case("silu", jax.nn.silu, (3, 5), scale=4)
case("softplus", jax.nn.softplus, (3, 5), scale=9)
case("log_softmax", lambda x: jax.nn.log_softmax(x, -1), (3, 5), scale=6)
case("logsumexp", lambda x: jax.nn.logsumexp(x, 0), (3, 5), scale=6)
case("swiglu", lambda x, g, u, d: (jax.nn.silu(x @ g) * (x @ u)) @ d, (2, 3, 4), (4, 6), (4, 6), (6, 4), scale=0.5)

# Rotary embedding, halves and interleaved.
def angles(s, d): return jnp.arange(s)[:, None] * 10000.0 ** (-jnp.arange(d // 2) / (d // 2))[None]
def rope_half(x):  # [batch, seq, heads, dim]
    c, s = jnp.cos(angles(x.shape[1], x.shape[3]))[:, None], jnp.sin(angles(x.shape[1], x.shape[3]))[:, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)
def rope_pairs(x):
    c, s = jnp.cos(angles(x.shape[1], x.shape[3]))[:, None], jnp.sin(angles(x.shape[1], x.shape[3]))[:, None]
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * c - b * s, b * c + a * s], -1).reshape(x.shape)
case("rope_half", rope_half, (2, 5, 2, 8))
case("rope_pairs", rope_pairs, (2, 5, 2, 8))

# Attention with grouped keys, causal, windowed, soft-capped. (jax.nn's own would
# take the softmax in float32.)
def attend(q, k, v, allowed):
    k, v = (jnp.repeat(t, q.shape[2] // k.shape[2], 2) for t in (k, v))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.3
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(allowed, s, -jnp.inf), -1), v)
def gqa(q, k, v): return attend(q, k, v, jnp.tril(jnp.ones((q.shape[1],) * 2, bool)))
def windowed(q, k, v):
    ones = jnp.ones((q.shape[1],) * 2, bool)
    return attend(q, k, v, jnp.tril(ones) & jnp.triu(ones, -2))
def softcap(q, k, v):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.3
    s = 2.0 * jnp.tanh(s / 2.0)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((s.shape[2], s.shape[3]), bool)), s, -jnp.inf), -1), v)
case("attention_gqa_causal", gqa, (2, 5, 4, 6), (2, 5, 2, 6), (2, 5, 2, 6))
case("attention_window", windowed, (1, 6, 2, 4), (1, 6, 2, 4), (1, 6, 2, 4))
case("attention_softcap", softcap, (1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4), scale=2)

# Losses: tokens with label -1 do not count; with a z-loss.
def cross_entropy(logits, labels):
    valid = labels >= 0
    lse = jax.nn.logsumexp(logits, -1)
    picked = jnp.take_along_axis(logits, jnp.where(valid, labels, 0)[..., None], -1)[..., 0]
    return jnp.sum(jnp.where(valid, lse - picked + 1e-2 * lse ** 2, 0)) / jnp.sum(valid)
case("cross_entropy", cross_entropy, (2, 4, 7), ints=([[1, -1, 6, 0], [3, 3, -1, 2]],), scale=3)
case("embedding", lambda table, head, ids: jnp.take(table, ids, axis=0) @ head, (7, 4), (4, 3), ints=([[1, 1, 6], [0, 3, 1]],))

# Mixture of experts: softmax, top-k, weights renormalised; every expert a
# matrix; and the load-balancing loss of the Switch Transformer.
def moe(x, router, experts):
    p = jax.nn.softmax(x @ router, -1)
    w, at = lax.top_k(p, 2)
    w = w / w.sum(-1, keepdims=True)
    y = jnp.einsum("tkd,tk->td", jnp.einsum("td,tkdf->tkf", x, experts[at]), w)
    load = jax.nn.one_hot(at, router.shape[1]).sum(1).mean(0) / 2
    return y, router.shape[1] * jnp.sum(load * p.mean(0))
case("moe", moe, (5, 4), (4, 6), (6, 4, 4))

# A recurrence under lax.scan, in reverse order too.
def lstm(x, w, u):
    def cell(c, x):
        h, m = c
        i, f, g, o = jnp.split(x @ w + h @ u, 4, -1)
        m = jax.nn.sigmoid(f) * m + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(m)
        return (h, m), h
    (h, m), hs = lax.scan(cell, (jnp.zeros(3), jnp.zeros(3)), x, reverse=True)
    return h, m, hs
case("lstm", lstm, (4, 2), (2, 12), (3, 12))

# Chunked linear attention: cumulative sums and a decay.
def decay(q, k, v):
    def step(s, x):
        q, k, v = x
        s = 0.9 * s + jnp.outer(k, v)
        return s, q @ s
    return lax.scan(step, jnp.zeros((q.shape[1], v.shape[1])), (q, k, v))[1], jnp.cumsum(v, 0)
case("linear_attention", decay, (5, 3), (5, 3), (5, 2))

# Optimisers: AdamW's new state, Muon's orthogonalised update.
def adamw(p, g, m, v):
    v = jnp.abs(v)
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    return p - 1e-2 * (m / (1 - 0.9 ** 3) / (jnp.sqrt(v / (1 - 0.95 ** 3)) + 1e-8) + 0.1 * p), m, v
case("adamw", adamw, (3, 4), (3, 4), (3, 4), (3, 4))
def muon(g):
    x = g / (jnp.linalg.norm(g) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x
case("muon", muon, (3, 5))

print(json.dumps(cases, separators=(",", ":")))
