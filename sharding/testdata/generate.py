"""Writes jax.json: how JAX splits arrays over meshes, for jax_test.go.

Run once, by hand, with JAX 0.10.2:

    JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=16 python generate.py > jax.json

Every case has the mesh axes, the device ids in mesh order, the shape, the axes
of each dimension, which dimensions the compiler may split as it likes ("open"),
Shardy's spelling of all that, the local shape with open dimensions closed, and
for each position of the mesh the [start, stop] of every dimension, as
NamedSharding.devices_indices_map has them.
"""
import json
import random

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rng = random.Random(0)
devices = jax.devices()
assert len(devices) == 16


def shardy(sharding, rank):
    """The dimension list of the Shardy attribute, e.g. [{"a", "b"}, {?}]."""
    with mlir.make_ir_context():
        text = str(sharding._to_sdy_sharding(rank).build({}))
    return text[text.rindex("["):text.rindex("]") + 1]


cases = []
meshes = [(1,), (2,), (8,), (16,), (2, 4), (4, 4), (2, 2, 2), (3, 5), (2, 3, 2), (1, 4, 2), (2, 2, 2, 2)]
while len(cases) < 250:
    sizes = rng.choice(meshes)
    n = int(np.prod(sizes))
    names = [chr(ord("a") + i) for i in range(len(sizes))]
    ids = list(range(n)) if rng.random() < 0.5 else rng.sample(range(16), n)
    mesh = Mesh(np.array([devices[i] for i in ids]).reshape(sizes), names)
    rank = rng.randrange(0, 7)
    spec = [[] for _ in range(rank)]
    for name in rng.sample(names, len(names)):
        if rank and rng.random() < 0.75:
            spec[rng.randrange(rank)].append(name)
    shape = [rng.randrange(1, 4) * int(np.prod([mesh.shape[a] for a in axes], dtype=int)) for axes in spec]
    if rank and rng.random() < 0.05:
        shape[rng.randrange(rank)] = 0
    entries = [None if not a else a[0] if len(a) == 1 else tuple(a) for a in spec]
    while entries and entries[-1] is None and rng.random() < 0.5:
        entries.pop()
    sharding = NamedSharding(mesh, PartitionSpec(*entries))
    opened = [d for d in range(len(entries)) if entries[d] is None and rng.random() < 0.3]
    unconstrained = [PartitionSpec.UNCONSTRAINED if d in opened else e for d, e in enumerate(entries)]
    where = sharding.devices_indices_map(tuple(shape))
    cases.append({
        "axes": [[a, s] for a, s in zip(names, sizes)],
        "ids": ids,
        "shape": shape,
        "spec": spec[:len(entries)],
        "open": opened,
        "shardy": shardy(NamedSharding(mesh, PartitionSpec(*unconstrained)), rank) if rank else "[]",
        "local": list(sharding.shard_shape(tuple(shape))),
        "index": [[list(s.indices(d)[:2]) for s, d in zip(where[device], shape)] for device in mesh.devices.flat],
    })
print("[")
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]")
