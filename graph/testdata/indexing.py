"""Writes indexing.json: what JAX makes of gather, scatter, sort, top-k, argmax,
cumsum and random numbers, for the tests of package graph.

    python indexing.py > indexing.json     (made with JAX 0.10.2, NumPy 2)
"""
import json
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)

NAMES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "bool": "bool",
         "int8": "s8", "int32": "s32", "int64": "s64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
rng = np.random.default_rng(1)


def array(x):
    x = np.asarray(x)
    return {"dtype": NAMES[x.dtype.name], "shape": list(x.shape), "hex": x.tobytes().hex()}


def case(op, name, inputs, f, diff=(), **attrs):
    """diff: which inputs are differentiated; the cotangent of the first result is random."""
    out = jax.tree.leaves(f(*inputs))
    c = {"op": op, "name": name, "inputs": [array(x) for x in inputs], "outputs": [array(x) for x in out]}
    c.update(attrs)
    if diff:
        def of(*xs):
            full = list(inputs)
            for i, x in zip(diff, xs):
                full[i] = x
            return jax.tree.leaves(f(*full))[0]
        y, vjp = jax.vjp(of, *[inputs[i] for i in diff])
        ct = jnp.asarray(rng.standard_normal(y.shape), y.dtype)
        c["cotangent"], c["diff"], c["grads"] = array(ct), list(diff), [array(g) for g in vjp(ct)]
    return c


def normal(*shape):
    return jnp.asarray(rng.standard_normal(shape))


def indices(lo, hi, *shape, dtype=np.int32):
    return jnp.asarray(rng.integers(lo, hi, shape), dtype)


# (name, operand shape, shape of the index array with vectors last, sizes, dims)
D = lambda **k: {"offset_dims": [], "collapsed_slice_dims": [], "operand_batching_dims": [], "start_indices_batching_dims": [], "start_index_map": [], **k}
DIMS = [
    ("rows", (5, 3), (4, 2, 1), (1, 3), D(offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0])),
    ("columns", (5, 3), (4, 1), (5, 1), D(offset_dims=[0], collapsed_slice_dims=[1], start_index_map=[1])),
    ("windows", (5, 6), (3, 2), (2, 3), D(offset_dims=[1, 2], start_index_map=[0, 1])),
    ("windows, map swapped", (5, 6), (3, 2), (2, 3), D(offset_dims=[0, 2], start_index_map=[1, 0])),
    ("points", (4, 3, 2), (5, 3), (1, 1, 1), D(collapsed_slice_dims=[0, 1, 2], start_index_map=[2, 0, 1])),
    ("one window", (4, 5), (2,), (3, 2), D(offset_dims=[0, 1], start_index_map=[0, 1])),
    ("whole dimension kept", (3, 5, 2), (2, 1), (3, 2, 2), D(offset_dims=[0, 1, 3], start_index_map=[1])),
    ("batched", (3, 5, 2), (3, 4, 1), (1, 1, 2), D(offset_dims=[2], collapsed_slice_dims=[1], operand_batching_dims=[0], start_indices_batching_dims=[0], start_index_map=[1])),
    ("batched twice, crosswise", (3, 4, 2, 2), (2, 3, 3, 1), (1, 2, 2, 1), D(offset_dims=[1, 4], operand_batching_dims=[0, 3], start_indices_batching_dims=[2, 0], start_index_map=[1])),
]


def limits(shape, sizes, d):
    return [shape[o] - sizes[o] for o in d["start_index_map"]]


def starts(shape, idx, sizes, d, inside, unique):
    lim = limits(shape, sizes, d)
    n = int(np.prod(idx[:-1]))
    cols = []
    for m in lim:
        lo, hi = (0, m + 1) if inside else (-2, m + 3)
        cols.append(rng.integers(lo, hi, n))
    return jnp.asarray(np.stack(cols, -1).reshape(idx), np.int32)


cases = []
for name, shape, idx, sizes, d in DIMS:
    rank = len(idx) - 1 + len(d["offset_dims"])
    gd = lax.GatherDimensionNumbers(offset_dims=tuple(d["offset_dims"]), collapsed_slice_dims=tuple(d["collapsed_slice_dims"]), start_index_map=tuple(d["start_index_map"]),
                                    operand_batching_dims=tuple(d["operand_batching_dims"]), start_indices_batching_dims=tuple(d["start_indices_batching_dims"]))
    sd = lax.ScatterDimensionNumbers(update_window_dims=gd.offset_dims, inserted_window_dims=gd.collapsed_slice_dims, scatter_dims_to_operand_dims=gd.start_index_map,
                                     operand_batching_dims=gd.operand_batching_dims, scatter_indices_batching_dims=gd.start_indices_batching_dims)
    x, i = normal(*shape), starts(shape, idx, sizes, d, False, False)
    attrs = dict(dims=d, index_vector_dim=len(idx) - 1, sizes=list(sizes))
    gather = lambda x, i: lax.gather(x, i, gd, sizes, mode="clip")
    cases.append(case("gather", name, [x, i], gather, (0,), **attrs))
    u = normal(*gather(x, i).shape)
    for kind, f in [("set", lax.scatter), ("add", lax.scatter_add), ("mul", lax.scatter_mul), ("min", lax.scatter_min), ("max", lax.scatter_max)]:
        scatter = lambda x, i, u: f(x, i, u, sd, mode="drop")
        cases.append(case("scatter", name, [x, i, u], scatter, (0,) if kind == "mul" else (0, 2), kind=kind, **attrs))

# Vectors along another dimension than the last, or of one element and no dimension at all.
x, i = normal(5, 6), indices(-1, 6, 3, 4, 2)
gd = lax.GatherDimensionNumbers(offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0, 1))
d = D(offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0, 1])
for ivd in (0, 1):
    f = lambda x, i: lax.gather(x, jnp.moveaxis(i, ivd, -1), gd, (1, 3), mode="clip")
    cases.append(case("gather", f"vectors along {ivd}", [x, jnp.moveaxis(i, -1, ivd)], f, (0,), dims=d, index_vector_dim=ivd, sizes=[1, 3]))
gd1 = lax.GatherDimensionNumbers(offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0,))
f = lambda x, i: lax.gather(x, i[..., None], gd1, (1, 6), mode="clip")
cases.append(case("gather", "no vector dimension", [x, i[..., 0]], f, (0,), dims=D(offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0]), index_vector_dim=2, sizes=[1, 6]))

# Products into places that are written once.
p = jnp.asarray([3, 0, 4], np.int32)
sd = lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
f = lambda x, i, u: lax.scatter_mul(x, i, u, sd, mode="drop", unique_indices=True)
cases.append(case("scatter", "unique", [normal(5, 2), p[:, None], normal(3, 2)], f, (0, 2), kind="mul", unique=True,
                  dims=D(offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0]), index_vector_dim=1, sizes=[1, 2]))
# Ties share the cotangent.
t = jnp.asarray([1., 2., 3.])
f = lambda x, i, u: lax.scatter_max(x, i, u, lax.ScatterDimensionNumbers((), (0,), (0,)), mode="drop")
cases.append(case("scatter", "ties", [t, jnp.asarray([[0], [1], [1], [2], [2]], np.int32), jnp.asarray([1., 2., 0., 4., 4.])], f, (0, 2), kind="max",
                  dims=D(collapsed_slice_dims=[0], start_index_map=[0]), index_vector_dim=1, sizes=[1]))

for dim in range(3):
    x = normal(2, 3, 4)
    for i in (indices(-2, 6, 2, 3), indices(0, 2, 2, dtype=np.uint8), jnp.asarray(1, np.int64)):
        cases.append(case("take", f"dim {dim}, indices {i.shape}", [x, i], lambda x, i: jnp.take(x, jnp.clip(i, 0, x.shape[dim] - 1), dim), (0,), dim=dim))
    s = [2, 3, 4]
    s[dim] = 5
    i = indices(-1, s[dim], *s)
    cases.append(case("take_along", f"dim {dim}", [x, i], lambda x, i: jnp.take_along_axis(x, jnp.clip(i, 0, x.shape[dim] - 1), dim), (0,), dim=dim))

special = np.array([1, np.nan, 0.0, -np.inf, 3, -np.nan, -0.0, 3, np.inf, -2, 1, 0.0])
for dtype in ("float64", "float32", "bfloat16", "float16"):
    x = jnp.asarray(special, dtype).reshape(2, 6)
    x = jnp.concatenate([x, x[:, ::-1], jnp.asarray(normal(2, 6), dtype)], 0)
    for dim in (0, 1):
        for desc in (False, True):
            cases.append(case("sort", f"{dtype} {dim} {desc}", [x], lambda x: jnp.sort(x, axis=dim, descending=desc), dim=dim, descending=desc))
            cases.append(case("argsort", f"{dtype} {dim} {desc}", [x], lambda x: jnp.argsort(x, axis=dim, descending=desc).astype(jnp.int32), dim=dim, descending=desc))
        for op, f in (("argmax", jnp.argmax), ("argmin", jnp.argmin)):
            cases.append(case(op, f"{dtype} {dim}", [x], lambda x: f(x, axis=dim).astype(jnp.int32), dim=dim))
for dtype in ("int32", "uint32", "int8", "bool"):
    x = jnp.asarray(rng.integers(-5, 5, (4, 6)) if dtype != "bool" else rng.integers(0, 2, (4, 6)), dtype if dtype != "uint32" else "int32").astype(dtype)
    for desc in (False, True):
        cases.append(case("sort", f"{dtype} {desc}", [x], lambda x: jnp.sort(x, axis=1, descending=desc), dim=1, descending=desc))
        cases.append(case("argsort", f"{dtype} {desc}", [x], lambda x: jnp.argsort(x, axis=1, descending=desc).astype(jnp.int32), dim=1, descending=desc))
    for op, f in (("argmax", jnp.argmax), ("argmin", jnp.argmin)):
        cases.append(case(op, dtype, [x], lambda x: f(x, axis=1).astype(jnp.int32), dim=1))
x = normal(3, 7)
cases.append(case("sort", "gradient", [x], lambda x: jnp.sort(x, axis=0), (0,), dim=0, descending=False))
for k in (1, 3, 7):
    cases.append(case("top_k", f"{k}", [x], lambda x: list(lax.top_k(x, k)), (0,), k=k))
ties = jnp.asarray([[1, 3, 3, 2, 3], [0, 0, 0, 0, 0]], jnp.float32)
cases.append(case("top_k", "ties", [ties], lambda x: list(lax.top_k(x, 3)), k=3))
cases.append(case("top_k", "integers", [ties.astype(jnp.int32)], lambda x: list(lax.top_k(x, 3)), k=3))

for dtype in ("float64", "float32", "int32", "uint8", "int64"):
    x = normal(2, 20) if dtype.startswith("f") else jnp.asarray(rng.integers(0, 100, (2, 20)))
    x = x.astype(dtype)
    for dim in (0, 1):
        for rev in (False, True):
            cases.append(case("cumsum", f"{dtype} {dim} {rev}", [x], lambda x: lax.cumsum(x, axis=dim, reverse=rev), (0,) if dtype == "float64" else (), dim=dim, reverse=rev))

# Random numbers: seed and what is folded in, then the draw.
SEEDS = [(0, []), (42, [7]), (0xDEADBEEF12345678, [1, 0xFFFFFFFF])]


def key(seed, folds):
    k = jax.random.wrap_key_data(jnp.asarray([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32), impl="threefry2x32")
    for f in folds:
        k = jax.random.fold_in(k, np.uint32(f))
    return k


for seed, folds in SEEDS:
    k = key(seed, folds)
    attrs = dict(seed=str(seed), folds=folds)
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        cases.append(case("bits", f"{seed} {dtype}", [], lambda: jax.random.bits(k, (3, 5), dtype), **attrs))
    for dtype in ("float32", "float64"):
        cases.append(case("uniform", f"{seed} {dtype}", [], lambda: jax.random.uniform(k, (4, 3), dtype), lo=0, hi=1, **attrs))
        cases.append(case("uniform", f"{seed} {dtype} wide", [], lambda: jax.random.uniform(k, (4, 3), dtype, -3, 5), lo=-3, hi=5, **attrs))
        cases.append(case("normal", f"{seed} {dtype}", [], lambda: jax.random.normal(k, (24,), dtype), **attrs))
        cases.append(case("truncated_normal", f"{seed} {dtype}", [], lambda: jax.random.truncated_normal(k, -2, 1.5, (24,), dtype), lo=-2, hi=1.5, **attrs))

print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
