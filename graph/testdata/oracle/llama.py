"""Writes llama.json: loss and parameters after one SGD step of the model in
llama_test.go, by JAX 0.10.2 with its own automatic differentiation. Run once:
python llama.py > llama.json. Element k of input i is sin((k+1)·(i+1))/4."""
import json
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_default_matmul_precision", "highest")
V, D, F, L, H, K, hd, S, B = 32, 16, 24, 2, 4, 2, 8, 12, 2
names = ["embed", "head", "norm"]; shapes = [(V, D), (D, V), (D,)]
for i in range(L):
    for n, s in [("norm1", (D,)), ("wq", (D, H, hd)), ("wk", (D, K, hd)), ("wv", (D, K, hd)), ("wo", (H, hd, D)), ("norm2", (D,)), ("gate", (D, F)), ("up", (D, F)), ("down", (F, D))]:
        names.append(f"layers.{i}.{n}"); shapes.append(s)
fill = lambda i, s: (np.sin((np.arange(np.prod(s)) + 1.0) * (i + 1)) / 4).astype(np.float32).reshape(s)
params = {n: fill(i, s) for i, (n, s) in enumerate(zip(names, shapes))}
tokens = (np.arange(B * S) * 7 % V).reshape(B, S); labels = (np.arange(B * S) * 5 % V).reshape(B, S)

def rms(x, w): return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * w
def rope(x):
    ang = jnp.arange(S)[:, None] * jnp.exp(-0.1 * (jnp.arange(hd) % (hd // 2)))[None]
    a, b = x[..., :hd // 2], x[..., hd // 2:]
    return x * jnp.cos(ang)[:, None] + jnp.concatenate([-b, a], -1) * jnp.sin(ang)[:, None]
def loss(p):
    x = p["embed"][tokens]
    for i in range(L):
        w = {n: p[f"layers.{i}.{n}"] for n in ("norm1", "wq", "wk", "wv", "wo", "norm2", "gate", "up", "down")}
        h = rms(x, w["norm1"])
        q, k, v = (jnp.einsum("bsd,dhk->bshk", h, w[n]) for n in ("wq", "wk", "wv"))
        q, k = rope(q), rope(k)
        k, v = jnp.repeat(k, H // K, 2), jnp.repeat(v, H // K, 2)
        s = jnp.where(np.tril(np.ones((S, S), bool)), jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125, -1e30)
        x = x + jnp.einsum("bqhd,hdo->bqo", jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v), w["wo"])
        h = rms(x, w["norm2"])
        x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    lg = rms(x, p["norm"]) @ p["head"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(lg, -1), labels[..., None], -1))
l, g = jax.jit(jax.value_and_grad(loss))(params)
out = {"loss": float(l), "grads": {n: [float(v) for v in np.asarray(g[n]).reshape(-1)[::3]] for n in names}}
print(json.dumps(out))
