#!/usr/bin/env python3
"""What every side of the comparison begins with: models, initial parameters, batch. As a program, writes them to
DIR/MODEL/model.safetensors, in Hugging Face's layout, and DIR/MODEL/batch.safetensors:

    python bench/fixture.py DIR

Parameters are N(0, 0.02) from PCG64(sha256("SEED:NAME")), norms 1; tokens are uniform from PCG64(SEED + 12345).
Names are those of jax_bench.py; linear layers are [out, in]."""
import hashlib, json, os, sys, time
import numpy as np

CFG = {"llama_debug": dict(vocab=2048, dim=256, layers=6, heads=16, kv=16, hd=16, ffn=768, theta=5e5, eps=1e-5, qknorm=False, experts=0),
       "qwen3_moe_debug": dict(vocab=2048, dim=256, layers=4, heads=8, kv=4, hd=32, ffn=256, theta=1e6, eps=1e-6, qknorm=True, experts=8, topk=2)}

def shapes(c, layers=None):
    D, H, K, hd, F, V, E = c["dim"], c["heads"], c["kv"], c["hd"], c["ffn"], c["vocab"], c["experts"]
    s = {"embed": (V, D), "norm": (D,), "head": (V, D)}
    for i in range(layers or c["layers"]):
        l = {"n1": (D,), "wq": (H*hd, D), "wk": (K*hd, D), "wv": (K*hd, D), "wo": (D, H*hd), "n2": (D,)}
        if c["qknorm"]: l.update(qn=(hd,), kn=(hd,))
        l.update({"router": (E, D), "wg": (E, F, D), "wu": (E, F, D), "wd": (E, D, F)} if E else {"wg": (F, D), "wu": (F, D), "wd": (D, F)})
        s.update({f"layers.{i}.{k}": v for k, v in l.items()})
    return s

def init(c, seed=0, layers=None):
    o = {}
    for n, sh in shapes(c, layers).items():
        if len(sh) == 1: o[n] = np.ones(sh, np.float32); continue
        h = int.from_bytes(hashlib.sha256(f"{seed}:{n}".encode()).digest()[:8], "little")
        o[n] = (0.02 * np.random.Generator(np.random.PCG64(h)).standard_normal(sh)).astype(np.float32)
    return o

def batch(c, rows, seq, seed=0):
    return np.random.Generator(np.random.PCG64(seed + 12345)).integers(0, c["vocab"], (rows, seq + 1)).astype(np.int32)

def hf_names(c, name):
    """The tensors in Hugging Face's layout that make up a parameter: one, or one for each expert."""
    top = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    if name in top: return [top[name] + ".weight"]
    _, i, k = name.split(".")
    at = f"model.layers.{i}."
    block = {"n1": "input_layernorm", "n2": "post_attention_layernorm", "wq": "self_attn.q_proj", "wk": "self_attn.k_proj", "wv": "self_attn.v_proj",
             "wo": "self_attn.o_proj", "qn": "self_attn.q_norm", "kn": "self_attn.k_norm", "router": "mlp.gate"}
    if k in block: return [at + block[k] + ".weight"]
    proj = {"wg": "gate_proj", "wu": "up_proj", "wd": "down_proj"}[k]
    return [f"{at}mlp.experts.{e}.{proj}.weight" for e in range(c["experts"])] if c["experts"] else [f"{at}mlp.{proj}.weight"]

def write(path, tensors):
    """Writes a safetensors file: a length, a JSON header, and the arrays back to back."""
    head, at = {}, 0
    for n, x in tensors.items():
        head[n] = dict(dtype={"float32": "F32", "int32": "I32"}[str(x.dtype)], shape=list(x.shape), data_offsets=[at, at + x.nbytes]); at += x.nbytes
    h = json.dumps(head).encode(); h += b" " * (-len(h) % 8)
    with open(path + ".new", "wb") as f:
        f.write(len(h).to_bytes(8, "little") + h)
        for x in tensors.values(): f.write(np.ascontiguousarray(x).tobytes())
    os.replace(path + ".new", path)

def read(path):
    with open(path, "rb") as f: head = json.loads(f.read(int.from_bytes(f.read(8), "little"))); at = f.tell()
    m = np.memmap(path, np.uint8, "r")
    return {n: m[at + t["data_offsets"][0]:at + t["data_offsets"][1]].view({"F32": np.float32, "I32": np.int32}[t["dtype"]]).reshape(t["shape"]) for n, t in head.items()}

def load(root, model):
    """Reads parameters, under the names of shapes, and the batch."""
    c = CFG[model]; t = read(f"{root}/{model}/model.safetensors")
    p = {}
    for n, sh in shapes(c).items():
        xs = [np.array(t[h]) for h in hf_names(c, n)]
        p[n] = np.stack(xs) if len(sh) == 3 else xs[0]
    return p, np.array(read(f"{root}/{model}/batch.safetensors")["tokens"])

def since_start():
    """Age of this process in seconds, to the hundredth (Linux)."""
    with open("/proc/self/stat") as f: ticks = float(f.read().rpartition(")")[2].split()[22 - 3])
    with open("/proc/uptime") as f: return round(float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"), 2)

if __name__ == "__main__":
    if len(sys.argv) != 2: sys.exit(__doc__)
    for model, c in CFG.items():
        d = os.path.join(sys.argv[1], model); os.makedirs(d, exist_ok=True); out = {}
        for n, x in init(c).items():
            names = hf_names(c, n); out.update(zip(names, x if len(names) > 1 else [x]))
        write(d + "/model.safetensors", out); write(d + "/batch.safetensors", {"tokens": batch(c, 8, 512)})
