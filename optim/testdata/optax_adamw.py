"""Writes optax_adamw.json: AdamW by optax 0.2.8 (jax 0.10.2) in float64. Run once:
python optax_adamw.py > optax_adamw.json

Element k of parameter i begins as sin((k+1)*(i+1)), and its gradient at step s is
scale*cos((k+1)*(i+1)+s) (update_test.go says the same). The parameters are embed
[4,3], layers.w [2,3,5], layers.norm [2,3]. Clipping is by the global norm as
torch.nn.utils.clip_grad_norm_ does it: times min(1, max_norm/(norm+1e-6))."""
import json
import jax, numpy as np, optax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp

SHAPES = {"embed": (4, 3), "layers.w": (2, 3, 5), "layers.norm": (2, 3)}

def values(f, shift=0.0, scale=1.0):
    return {n: jnp.asarray(scale * f((np.arange(np.prod(s)) + 1.0) * (i + 1) + shift).reshape(s))
            for i, (n, s) in enumerate(SHAPES.items())}

def train(steps, max_norm, grad_scale, lr, groups):
    """groups: parameter name -> dict of lr factor and adamw's arguments."""
    params = values(np.sin)
    txs = {n: optax.inject_hyperparams(optax.adamw)(learning_rate=0.0, **{k: v for k, v in g.items() if k != "factor"})
           for n, g in groups.items()}
    states = {n: txs[n].init(params[n]) for n in params}
    norms = []
    for s in range(steps):
        grads = values(np.cos, float(s), grad_scale)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
        norms.append(float(norm))
        clip = jnp.minimum(1.0, max_norm / (norm + 1e-6)) if max_norm > 0 else 1.0
        for n in params:
            states[n].hyperparams["learning_rate"] = jnp.asarray(lr(s) * groups[n].get("factor", 1.0))
            up, states[n] = txs[n].update(grads[n] * clip, states[n], params[n])
            params[n] = optax.apply_updates(params[n], up)
    return {"norms": norms, "params": {n: np.asarray(p).reshape(-1).tolist() for n, p in params.items()}}

base = dict(b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1)
plain = {n: base for n in SHAPES}
cases = {
    "constant": train(12, 1.0, 1.0, lambda s: 1e-3, plain),
    "unclipped": train(12, 0.0, 1.0, lambda s: 1e-2, plain),
    "within": train(5, 100.0, 0.1, lambda s: 1e-2, plain),
    "beta2 0.999": train(12, 1.0, 1.0, lambda s: 1e-3, {n: dict(base, b2=0.999, b1=0.99, eps=1e-6) for n in SHAPES}),
    "tiny gradients": train(6, 1.0, 1e-7, lambda s: 1e-3, plain),
    # Warm-up over 4 of 12 steps, then linear decay over 8 that ends one step later.
    "warm-up": train(12, 1.0, 1.0, lambda s: 1e-2 * ((s + 1) / 4 if s < 5 and s + 1 <= 4 else 1.0 if s < 5 else 1 - (s + 1 - 5) / 8), plain),
    "groups": train(12, 1.0, 1.0, lambda s: 1e-2, {
        "embed": dict(base, factor=0.25, weight_decay=0.0),
        "layers.w": base,
        "layers.norm": dict(base, factor=2.0, weight_decay=0.0, b1=0.8, b2=0.9, eps=1e-5)}),
}
print(json.dumps(cases, indent=1))
