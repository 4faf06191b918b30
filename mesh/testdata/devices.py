"""Writes devices.json: what libtpu says of the devices of some topologies.

Run once, by hand, with JAX 0.10.2 and libtpu 0.0.52 (TPU_LIBRARY_PATH names the
library); no TPU is needed:

    TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1 JAX_PLATFORMS=cpu \
        TPU_WORKER_HOSTNAMES=localhost TPU_WORKER_ID=0 python devices.py > devices.json

Each device is [id, process, slice, coords, core].
"""
import json
from jax.experimental import topologies

cases = [
    ("v5e:1x1", 1), ("v5e:2x2", 1), ("v5e:2x4", 1), ("v5e:4x4", 2), ("v5e:8x16", 1), ("v6e:16x16", 1),
    ("v5p:2x2x2", 1), ("v5p:2x4x4", 1), ("v5p:4x4x4", 1), ("v5p:4x4x8", 1),
    ("tpu7x:2x2x1", 1), ("tpu7x:2x2x2", 2), ("tpu7x:4x4x4", 1),
]
out = {}
for name, slices in cases:
    options = {"num_slices": slices} if slices > 1 else {}
    devices = topologies.get_topology_desc(platform="tpu", topology_name=name, **options).devices
    key = name if slices == 1 else f"{name}*{slices}"
    out[key] = {
        "kind": devices[0].device_kind,
        "devices": [[d.id, d.process_index, getattr(d, "slice_index", None) or 0, list(d.coords), d.core_on_chip]
                    for d in devices],
    }
print("{")
print(",\n".join(f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in out.items()))
print("}")
