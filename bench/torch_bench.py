#!/usr/bin/env python3
"""PyTorch training-step baseline (CPU), eager or torch.compile, same models/init/data as jax_bench.py.  One JSON line."""
import argparse, json, os, sys, time, resource
ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--model", choices=["llama_debug", "qwen3_moe_debug"], default="llama_debug")
ap.add_argument("--dtype", choices=["f32", "bf16"], default="f32"); ap.add_argument("--compile", action="store_true")
ap.add_argument("--attn", choices=["sdpa", "naive"], default="sdpa"); ap.add_argument("--remat", choices=["none", "full"], default="none")
ap.add_argument("--batch", type=int, default=8); ap.add_argument("--seq", type=int, default=512)
ap.add_argument("--steps", type=int, default=10); ap.add_argument("--warmup", type=int, default=1)
ap.add_argument("--max-seconds", type=float, default=130, help="stop the timing loop early (n is reported)")
ap.add_argument("--lr", type=float, default=3e-4); ap.add_argument("--seed", type=int, default=0); ap.add_argument("--threads", type=int, default=os.cpu_count())
ap.add_argument("--data", default="", help="folder written by fixture.py; otherwise the same values are made here")
a = ap.parse_args()
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np, torch, torch.nn as nn, torch.nn.functional as TF
from fixture import CFG, shapes, init, batch, load, since_start
torch.set_num_threads(a.threads)
c = CFG[a.model]; D, H, K, hd, F, V, L, E = c["dim"], c["heads"], c["kv"], c["hd"], c["ffn"], c["vocab"], c["layers"], c["experts"]
cd = torch.float32 if a.dtype == "f32" else torch.bfloat16
inv = (1.0 / c["theta"] ** (np.arange(0, hd, 2) / hd)).astype(np.float32); ang = np.arange(a.seq, dtype=np.float32)[:, None] * inv[None]
COS, SIN = (torch.from_numpy(f(np.concatenate([ang, ang], -1))[None, :, None].astype(np.float32)) for f in (np.cos, np.sin))
def rms(x, w): return TF.rms_norm(x.float(), (x.shape[-1],), w, c["eps"]).to(cd)
def lin(x, w): return TF.linear(x, w.to(cd))
def rope(x):
    x = x.float(); x1, x2 = x.chunk(2, -1); return (x * COS + torch.cat([-x2, x1], -1) * SIN).to(cd)
class Layer(nn.Module):
    def __init__(s, p):
        super().__init__()
        for k, v in p.items(): setattr(s, k, nn.Parameter(torch.from_numpy(v)))
    def mlp(s, h):
        if not E: return lin(TF.silu(lin(h, s.wg)) * lin(h, s.wu), s.wd)
        t = h.reshape(-1, D); pr = torch.softmax(lin(t, s.router).float(), -1); w, ix = torch.topk(pr, c["topk"], -1); w = (w / w.sum(-1, keepdim=True)).to(cd)
        y = torch.zeros_like(t)                                 # dropless, loop over experts, sort by expert once
        fl = ix.reshape(-1); order = torch.argsort(fl, stable=True); tok = order // c["topk"]; gs = torch.bincount(fl, minlength=E).tolist()
        xs = t[tok].split(gs); outs = [lin(TF.silu(lin(x, s.wg[e])) * lin(x, s.wu[e]), s.wd[e]) for e, x in enumerate(xs)]
        return y.index_add(0, tok, torch.cat(outs) * w.reshape(-1)[order][:, None]).reshape(h.shape)
    def forward(s, x):
        b, n, _ = x.shape; h = rms(x, s.n1); q, k, v = (lin(h, w).view(b, n, -1, hd) for w in (s.wq, s.wk, s.wv))
        if c["qknorm"]: q, k = rms(q, s.qn), rms(k, s.kn)
        q, k, v = (z.transpose(1, 2) for z in (rope(q), rope(k), v))
        if a.attn == "sdpa": o = TF.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=(H != K))
        else:
            k, v = (z.repeat_interleave(H // K, 1) for z in (k, v)); sc = (q @ k.transpose(-1, -2)).float() * hd ** -0.5
            o = torch.softmax(sc.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -1e30), -1).to(cd) @ v
        x = x + lin(o.transpose(1, 2).reshape(b, n, H * hd), s.wo); return x + s.mlp(rms(x, s.n2))
class Model(nn.Module):
    def __init__(s, p):
        super().__init__(); s.embed, s.norm, s.head = (nn.Parameter(torch.from_numpy(p[k])) for k in ("embed", "norm", "head"))
        s.layers = nn.ModuleList([Layer({k.split(".")[2]: v for k, v in p.items() if k.startswith(f"layers.{i}.")}) for i in range(L)])
    def forward(s, tok):
        x = TF.embedding(tok[:, :-1], s.embed.to(cd))
        for l in s.layers: x = torch.utils.checkpoint.checkpoint(l, x, use_reentrant=False) if a.remat == "full" else l(x)
        lg = lin(rms(x, s.norm), s.head).float()
        return TF.cross_entropy(lg.reshape(-1, V), tok[:, 1:].reshape(-1))
np_p, np_tok = load(a.data, a.model) if a.data else (init(c, a.seed), batch(c, a.batch, a.seq, a.seed))
m = Model(np_p); nparam = sum(p.numel() for p in m.parameters()); tok = torch.from_numpy(np_tok.astype(np.int64))
opt = torch.optim.AdamW(m.parameters(), lr=a.lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
f = torch.compile(m) if a.compile else m
def step():
    opt.zero_grad(set_to_none=True); l = f(tok); l.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); return l.item()
act = sum(int(np.prod(s)) * (c["topk"] / E if (E and len(s) == 3) else 1) for n, s in shapes(c).items() if len(s) > 1 and n != "embed")
T = a.batch * a.seq; fl = 6 * act * T + 12 * L * a.seq * H * hd * T
ts, cs, ls = [], [], []
tl = time.perf_counter()
for i in range(a.warmup + a.steps):
    if i >= a.warmup + 3 and time.perf_counter() - tl > a.max_seconds: break
    t = time.perf_counter(); ct = time.process_time(); ls.append(step()); ts.append(time.perf_counter() - t); cs.append(time.process_time() - ct)
    if i == 0: first_loss, first_cpu = since_start(), round(time.process_time(), 2)
first = ts[0]; ts = sorted(ts[a.warmup:]); cs = sorted(cs[a.warmup:])
print(json.dumps(dict(impl="torch_compile" if a.compile else "torch_eager", version=torch.__version__, model=a.model, dtype=a.dtype, attn=a.attn, devices=1, threads=a.threads, remat=a.remat, batch=a.batch, seq=a.seq,
    params=nparam, flops_per_step_G=round(fl / 1e9, 1), first_step_s=round(first, 2), first_loss_s=first_loss, first_loss_cpu_s=first_cpu, step_min_s=round(ts[0], 4), step_median_s=round(ts[len(ts)//2], 4), step_cpu_min_s=round(cs[0], 4), n=len(ts),
    tokens_per_s=round(T / ts[0], 1), gflops=round(fl / ts[0] / 1e9, 1), loss_first=round(ls[0], 6), loss_last=round(ls[-1], 6), losses=[round(x, 7) for x in ls], peak_rss_MiB=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), loadavg1=os.getloadavg()[0])))
