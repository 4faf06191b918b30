"""Writes reference.safetensors with the Python package, one tensor of each
element type, and reads it back as the Go test expects it.

    pip install safetensors==0.8.0 && python make_reference.py
"""
import ctypes

import safetensors
from safetensors import TensorSpec

SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
         "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
SHAPES = [[], [0], [3], [2, 3], [2, 1, 5]]

tensors = {}
for i, (name, size) in enumerate(SIZES.items()):
    shape = SHAPES[i % len(SHAPES)]
    n = size
    for s in shape:
        n *= s
    data = bytes((17 * i + 31 * k) % (2 if name == "bool" else 256) for k in range(n))
    tensors[f"t.{name}"] = {"dtype": name, "shape": shape, "data": data}
tensors['quote " slash \\ <&> é'] = {"dtype": "uint8", "shape": [1], "data": b"\x07"}
buffers = {k: ctypes.create_string_buffer(t["data"], len(t["data"])) for k, t in tensors.items()}
specs = {k: TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=ctypes.addressof(buffers[k]), data_len=len(t["data"]))
         for k, t in tensors.items()}
raw = safetensors.serialize(specs, {"format": "pt"})
with open("reference.safetensors", "wb") as f:
    f.write(raw)
for name, t in safetensors.deserialize(raw):
    print(name, t["dtype"], t["shape"], bytes(t["data"]).hex())
