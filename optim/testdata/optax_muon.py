"""Writes optax_muon.json: Muon and AdamW by optax 0.2.8 (jax 0.10.2) in float64. Run
once: python optax_muon.py > optax_muon.json

Element k of parameter i begins as sin(0.37*(k+1)^2*(i+1)), and its gradient at step s
is scale*cos(0.37*(k+1)^2*(i+1)+s) (muon_test.go says the same). Clipping is by the
global norm, times min(1, max_norm/(norm+1e-6)).

"plain" is optax.contrib.muon from end to end. Its Nesterov corrects the bias of
momentum and gradient apart, which Jordan's and PyTorch's Muon do not; so the other
cases take from optax the orthogonalization and the factors by shape, and have
the momentum here: m = mu*m + (1-mu)*g, u = mu*m + (1-mu)*g."""
import json
import jax, numpy as np, optax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from optax.contrib import _muon as om

D = om.MuonDimensionNumbers
SHAPES = {
    "embed": ((7, 4), None),
    "layers.wq": ((3, 4, 2, 3), D((1,), (2, 3))),
    "layers.wo": ((3, 2, 3, 4), D((1, 2), (3,))),
    "layers.experts.w_up": ((2, 3, 4, 5), D((2,), (3,))),
    "layers.experts.w_down": ((2, 3, 5, 4), D((2,), (3,))),
    "layers.router": ((2, 4, 3), D((1,), (2,))),
    "layers.norm": ((3, 4), None),
    "output": ((4, 7), None),
}
MATRICES = {n: d for n, (_, d) in SHAPES.items() if d is not None}

def values(f, shift=0.0, scale=1.0):
    return {n: jnp.asarray(scale * f(0.37 * (np.arange(np.prod(s)) + 1.0) ** 2 * (i + 1) + shift).reshape(s))
            for i, (n, (s, _)) in enumerate(SHAPES.items())}

def clipped(s, max_norm, scale):
    grads = values(np.cos, float(s), scale)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
    clip = jnp.minimum(1.0, max_norm / (norm + 1e-6)) if max_norm > 0 else 1.0
    return {n: g * clip for n, g in grads.items()}

def result(params):
    return {n: [round(x, 9) for x in np.asarray(p).reshape(-1).tolist()] for n, p in params.items()}

def plain(steps, lr, wd, rms):
    tx = om.muon(lr, beta=0.95, weight_decay=wd, nesterov=False, adam_b1=0.9, adam_b2=0.95, adam_weight_decay=wd,
                 consistent_rms=rms, muon_weight_dimension_numbers={n: d for n, (_, d) in SHAPES.items()})
    params = values(np.sin)
    state = tx.init(params)
    for s in range(steps):
        up, state = tx.update(clipped(s, 1.0, 1.0), state, params)
        params = optax.apply_updates(params, up)
    return result(params)

def nesterov(steps, lr, muon_lr, wd, mu, ns_steps, rms, max_norm=1.0, scale=1.0):
    params = values(np.sin)
    m = {n: jnp.zeros_like(params[n]) for n in MATRICES}
    adam = optax.adamw(lr, b1=0.9, b2=0.95, eps=1e-8, weight_decay=wd)
    rest = lambda t: {n: x for n, x in t.items() if n not in MATRICES}
    state = adam.init(rest(params))
    by_shape = om.scale_by_shape(MATRICES, consistent_rms=rms)
    for s in range(steps):
        g = clipped(s, max_norm, scale)
        up, state = adam.update(rest(g), state, rest(params))
        params |= optax.apply_updates(rest(params), up)
        x = {}
        for n, d in MATRICES.items():
            m[n] = mu * m[n] + (1 - mu) * g[n]
            x[n] = om.orthogonalize_via_newton_schulz(mu * m[n] + (1 - mu) * g[n], jnp.asarray(om._DEFAULT_NS_COEFFS), ns_steps,
                                                      eps=0.0, dimension_numbers=d)
        x, _ = by_shape.update(x, by_shape.init(m))
        for n in MATRICES:
            params[n] = params[n] * (1 - muon_lr * wd) - muon_lr * x[n]
    return result(params)

print(json.dumps({
    "plain": plain(8, 1e-2, 0.1, 0.2),
    "nesterov": nesterov(8, 1e-2, 1e-2, 0.1, 0.95, 5, 0.2),
    "original": nesterov(8, 1e-3, 2e-2, 0.01, 0.9, 5, None),
    "seven iterations": nesterov(4, 1e-2, 5e-3, 0.0, 0.95, 7, 0.2, max_norm=0.0, scale=3.0),
}))
