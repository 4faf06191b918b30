#!/usr/bin/env python3
"""JAX/optax training-step baseline (CPU).  Prints one JSON line.
models: llama_debug (TorchTitan llama3 debugmodel sizes), qwen3_moe_debug."""
import argparse, json, os, sys, time, resource
ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--model", choices=["llama_debug", "qwen3_moe_debug"], default="llama_debug")
ap.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="compute dtype; params/optimizer always f32")
ap.add_argument("--devices", type=int, default=1, help=">1: that many virtual CPU devices, FSDP")
ap.add_argument("--remat", choices=["none", "full"], default="none", help="jax.checkpoint around each layer")
ap.add_argument("--moe", choices=["ragged", "dense", "block"], default="ragged")
ap.add_argument("--block", type=int, default=256, help="row block of --moe block")
ap.add_argument("--scan", type=int, default=0, help="1: stack layers and lax.scan")
ap.add_argument("--batch", type=int, default=8); ap.add_argument("--seq", type=int, default=512)
ap.add_argument("--steps", type=int, default=10); ap.add_argument("--warmup", type=int, default=1)
ap.add_argument("--max-seconds", type=float, default=130, help="stop the timing loop early (n is reported)")
ap.add_argument("--layers", type=int, default=0, help="override the number of layers")
ap.add_argument("--lr", type=float, default=3e-4); ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--data", default="", help="folder written by fixture.py; otherwise the same values are made here")
ap.add_argument("--compile-only", action="store_true"); ap.add_argument("--trace-only", action="store_true", help="stop before compiling")
a = ap.parse_args()
if a.devices > 1: os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={a.devices}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import numpy as np, jax, jax.numpy as jnp, optax
from fixture import CFG, shapes, init, batch, load, since_start
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
c = CFG[a.model]; D, H, K, hd, F, V, L, E = c["dim"], c["heads"], c["kv"], c["hd"], c["ffn"], c["vocab"], c["layers"], c["experts"]
if a.layers: L = a.layers
cd = jnp.float32 if a.dtype == "f32" else jnp.bfloat16
if a.dtype == "f32": jax.config.update("jax_default_matmul_precision", "highest")

def tree(p):   # flat -> {embed,norm,head,layers}; layers stacked if scan
    t = {k: p[k] for k in ("embed", "norm", "head")}; ks = sorted({k.split(".")[2] for k in p if k.startswith("layers.")})
    t["layers"] = ({k: np.stack([p[f"layers.{i}.{k}"] for i in range(L)]) for k in ks} if a.scan else [{k: p[f"layers.{i}.{k}"] for k in ks} for i in range(L)])
    return t
def rms(x, w): xf = x.astype(jnp.float32); return (xf * jax.lax.rsqrt(jnp.mean(xf * xf, -1, keepdims=True) + c["eps"]) * w).astype(cd)
def lin(x, w): return jnp.einsum("...i,oi->...o", x, w.astype(cd))
inv = (1.0 / c["theta"] ** (np.arange(0, hd, 2) / hd)).astype(np.float32); ang = np.arange(a.seq, dtype=np.float32)[:, None] * inv[None]
COS, SIN = (f(np.concatenate([ang, ang], -1))[None, :, None].astype(np.float32) for f in (np.cos, np.sin))
def rope(x): x1, x2 = jnp.split(x.astype(jnp.float32), 2, -1); return (jnp.concatenate([x1, x2], -1) * COS + jnp.concatenate([-x2, x1], -1) * SIN).astype(cd)
MASK = np.tril(np.ones((a.seq, a.seq), bool))

def moe_local(t, router, wg, wu, wd):     # t [T,D]; dropless
    T, k = t.shape[0], c["topk"]
    pr = jax.nn.softmax(lin(t, router).astype(jnp.float32), -1); w, ix = jax.lax.top_k(pr, k); w = w / w.sum(-1, keepdims=True)
    wg, wu, wd = (z.astype(cd) for z in (wg, wu, wd))
    if a.moe == "dense":                  # every expert on every token (E/k times the useful FLOPs)
        g = jnp.zeros_like(pr).at[jnp.arange(T)[:, None], ix].set(w)
        h = jax.nn.silu(jnp.einsum("td,efd->etf", t, wg)) * jnp.einsum("td,efd->etf", t, wu)
        return jnp.einsum("etf,edf,te->td", h, wd, g.astype(cd))
    fl = ix.reshape(-1); order = jnp.argsort(fl, stable=True); tok = order // k; gs = jnp.bincount(fl, length=E)
    if a.moe == "ragged":
        xs = t[tok]; rd = lambda x, w: jax.lax.ragged_dot(x, w.swapaxes(1, 2), gs.astype(jnp.int32))
        y = rd(jax.nn.silu(rd(xs, wg)) * rd(xs, wu), wd)
        return jnp.zeros_like(t).at[tok].add(y * w.reshape(-1)[order][:, None].astype(cd))
    # block: pad every expert's rows up to a multiple of `bs`; static size n = T*k/bs + E blocks; batched GEMM with per-block weights
    bs = a.block; n = (T * k) // bs + E; pad = -(-gs // bs) * bs; start = jnp.cumsum(pad) - pad; gstart = jnp.cumsum(gs) - gs
    es = fl[order]; dst = start[es] + jnp.arange(T * k) - gstart[es]
    src = jnp.full((n * bs,), T, jnp.int32).at[dst].set(tok.astype(jnp.int32)); tp = jnp.concatenate([t, jnp.zeros((1, D), t.dtype)])
    be = jnp.clip(jnp.searchsorted(jnp.cumsum(pad), jnp.arange(n) * bs, side="right"), 0, E - 1)
    xb = tp[src].reshape(n, bs, D); bm = lambda x, w: jnp.einsum("nbi,noi->nbo", x, w[be])
    y = bm(jax.nn.silu(bm(xb, wg)) * bm(xb, wu), wd).reshape(n * bs, D)[dst]
    return jnp.zeros_like(t).at[tok].add(y * w.reshape(-1)[order][:, None].astype(cd))

mesh = Mesh(np.array(jax.devices()[:a.devices]), ("fsdp",)) if a.devices > 1 else None
def layer(x, l):
    b, s, _ = x.shape; h = rms(x, l["n1"])
    q, k, v = (lin(h, l[n]).reshape(b, s, -1, hd) for n in ("wq", "wk", "wv"))
    if c["qknorm"]: q, k = rms(q, l["qn"]), rms(k, l["kn"])
    q, k = rope(q), rope(k)
    if H != K: k, v = (jnp.repeat(z, H // K, 2) for z in (k, v))
    sc = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * hd ** -0.5
    pr = jax.nn.softmax(jnp.where(MASK, sc, -1e30), -1).astype(cd)
    x = x + lin(jnp.einsum("bhqk,bkhd->bqhd", pr, v).reshape(b, s, H * hd), l["wo"]); h = rms(x, l["n2"])
    if not E: return x + lin(jax.nn.silu(lin(h, l["wg"])) * lin(h, l["wu"]), l["wd"])
    f = lambda h, *w: moe_local(h.reshape(-1, D), *w).reshape(h.shape)
    if mesh is not None: f = jax.shard_map(f, mesh=mesh, in_specs=(P("fsdp"), P(), P(), P(), P()), out_specs=P("fsdp"), check_vma=False)
    return x + f(h, l["router"], l["wg"], l["wu"], l["wd"])
lay = jax.checkpoint(layer) if a.remat == "full" else layer
def loss_fn(p, tok):
    x = p["embed"].astype(cd)[tok[:, :-1]]
    if mesh is not None: x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("fsdp")))
    if a.scan: x, _ = jax.lax.scan(lambda x, l: (lay(x, l), None), x, p["layers"])
    else:
        for l in p["layers"]: x = lay(x, l)
    lg = jnp.einsum("bsd,vd->bsv", rms(x, p["norm"]), p["head"].astype(cd)).astype(jnp.float32)
    return jnp.mean(jax.nn.logsumexp(lg, -1) - jnp.take_along_axis(lg, tok[:, 1:, None], -1)[..., 0])
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(a.lr, 0.9, 0.95, eps=1e-8, weight_decay=0.1))
def step(p, st, tok):
    l, g = jax.value_and_grad(loss_fn)(p, tok); u, st = tx.update(g, st, p); return optax.apply_updates(p, u), st, l

def shard(x):  # FSDP: largest dim divisible by #devices (not the scan/layer dim)
    if mesh is None or x.ndim == 0: return None
    ds = [i for i in range(1 if (a.scan and x.shape[0] == L) else 0, x.ndim) if x.shape[i] % a.devices == 0]
    i = max(ds, key=lambda i: x.shape[i]) if ds else None
    return NamedSharding(mesh, P(*[("fsdp" if j == i else None) for j in range(x.ndim)]))
np_p, np_tok = load(a.data, a.model) if a.data else (init(c, a.seed, L), batch(c, a.batch, a.seq, a.seed)); nparam = sum(v.size for v in np_p.values()); p = tree(np_p)
rep = NamedSharding(mesh, P()) if mesh is not None else None
put = lambda x: jax.device_put(x, shard(x) if (mesh is not None and x.ndim) else rep)
p = jax.tree.map(put, p); st = jax.tree.map(lambda x: put(np.asarray(x)), tx.init(p)); tok = jax.device_put(np_tok, NamedSharding(mesh, P("fsdp")) if mesh is not None else None)
kw = {}
if mesh is not None: kw["out_shardings"] = (jax.tree.map(lambda x: x.sharding, p), jax.tree.map(lambda x: x.sharding, st), rep)
cp0 = time.process_time(); t0 = time.perf_counter(); low = jax.jit(step, donate_argnums=(0, 1), **kw).lower(p, st, tok); text = low.as_text() if a.trace_only else ""; t1 = time.perf_counter()
if a.trace_only: print(json.dumps(dict(impl="jax", version=jax.__version__, trace_lower_s=round(t1 - t0, 3), text_bytes=len(text)))); sys.exit()
comp = low.compile(); t2 = time.perf_counter(); cp1 = time.process_time()
m = comp.memory_analysis(); MB = lambda x: round(x / 2**20, 1)
act = sum(int(np.prod(s)) * (c["topk"] / E if (E and len(s) == 3) else 1) for n, s in shapes(c, L).items() if len(s) > 1 and n != "embed")
T = a.batch * a.seq; fl = 6 * act * T + 12 * L * a.seq * H * hd * T
r = dict(impl="jax", version=jax.__version__, model=a.model, dtype=a.dtype, devices=a.devices, remat=a.remat, moe=a.moe if E else None, scan=a.scan, batch=a.batch, seq=a.seq,
         params=int(nparam), flops_per_step_G=round(fl / 1e9, 1), trace_lower_s=round(t1 - t0, 2), compile_s=round(t2 - t1, 2), trace_compile_cpu_s=round(cp1 - cp0, 2), temp_MiB_per_device=MB(m.temp_size_in_bytes), args_MiB_per_device=MB(m.argument_size_in_bytes), alias_MiB=MB(m.alias_size_in_bytes))
if not a.compile_only:
    ts, cs, ls = [], [], []
    tl = time.perf_counter()
    for i in range(a.warmup + a.steps):
        if i >= a.warmup + 3 and time.perf_counter() - tl > a.max_seconds: break
        t = time.perf_counter(); ct = time.process_time(); p, st, l = comp(p, st, tok); l.block_until_ready(); jax.block_until_ready(p); ts.append(time.perf_counter() - t); cs.append(time.process_time() - ct); ls.append(float(l))
        if i == 0: r["first_loss_s"], r["first_loss_cpu_s"] = since_start(), round(time.process_time(), 2)
    ts = sorted(ts[a.warmup:]); cs = sorted(cs[a.warmup:])
    r.update(step_min_s=round(ts[0], 4), step_median_s=round(ts[len(ts)//2], 4), step_cpu_min_s=round(cs[0], 4), n=len(ts), tokens_per_s=round(T / ts[0], 1), gflops=round(fl / ts[0] / 1e9, 1), loss_first=round(ls[0], 6), loss_last=round(ls[-1], 6), losses=[round(x, 7) for x in ls])
r["peak_rss_MiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024); r["loadavg1"] = os.getloadavg()[0]
print(json.dumps(r))
