#!/usr/bin/env python3
"""Load a model in Hugging Face's layout with Transformers and compare its logits with a reference.

    python bench/hf_logits.py DIR REFERENCE.safetensors [--tolerance 1e-5]

DIR is what `titan checkpoint export` wrote. REFERENCE has `tokens`, whole numbers [batch, n], and `logits`
[batch, s, vocab] for the first s of them, s <= n; a tensor `tokens` of three dimensions counts with its first batch.
That is what bench/logits writes, and the io.safetensors of models/decoder/testdata/golden.

Everything is computed on the CPU in float32, unless --dtype says otherwise. Without a reference the model is only
loaded and run. The exit code is 1 if a tensor is missing, unexpected or of another shape, or a logit differs by more
than the tolerance times the largest logit (at least 1): f32 has seven digits. Needs: torch, transformers, safetensors.
"""
import argparse
import os
import sys

import torch
import transformers
from safetensors.torch import load_file


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("reference", nargs="?")
    p.add_argument("--tolerance", type=float, default=1e-5, help="largest difference, relative to the largest logit if that is above 1 (default 1e-5)")
    p.add_argument("--dtype", default="float32", help="element type to compute in (default float32)")
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    config = transformers.AutoConfig.from_pretrained(a.dir)
    version = tuple(int(x) for x in transformers.__version__.split(".")[:2])
    dtype = "dtype" if version >= (4, 56) else "torch_dtype"
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        a.dir, attn_implementation="eager", output_loading_info=True, **{dtype: getattr(torch, a.dtype)})
    model.eval()
    bad = {k: sorted(map(str, v)) for k, v in info.items() if v}
    count = sum(x.numel() for x in model.parameters())
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: {a.dir} is a {type(model).__name__} "
          f"of {count} parameters, stored as {getattr(config, dtype)}, computed in {a.dtype}")
    if bad:
        print(f"FAULT: {bad}")
        return 1
    if not os.path.exists(os.path.join(a.dir, "tokenizer.json")):
        print("tokenizer: none")
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(a.dir)
        text = "func main() {\n\treturn 1\n}"
        ids = tokenizer.encode(text)
        print(f"tokenizer: {type(tokenizer).__name__} of {len(tokenizer)} tokens, bos {tokenizer.bos_token!r}, eos "
              f"{tokenizer.eos_token!r}; {text!r} is {ids}")
        if max(ids, default=0) >= config.vocab_size:
            print(f"FAULT: a token is beyond the vocabulary of {config.vocab_size}")
            return 1

    if not a.reference:
        with torch.no_grad():
            logits = model(torch.arange(8)[None] % config.vocab_size).logits
        print(f"no reference; logits {tuple(logits.shape)} are finite: {bool(torch.isfinite(logits).all())}")
        return 0 if torch.isfinite(logits).all() else 1
    ref = load_file(a.reference)
    tokens, want = ref["tokens"].long(), ref["logits"].float()
    if tokens.dim() == 3:
        tokens = tokens[0]
    with torch.no_grad():
        got = model(tokens[:, :want.shape[1]]).logits.float()
    diff = (got - want).abs()
    limit = a.tolerance * max(1, want.abs().max().item())
    ok = got.shape == want.shape and diff.max().item() <= limit
    print(f"logits {tuple(got.shape)}, largest {want.abs().max():.4g}: differ by at most {diff.max():.3g}, "
          f"{diff.mean():.3g} on average; the likeliest token agrees at {(got.argmax(-1) == want.argmax(-1)).float().mean():.2%} "
          f"of positions: {'ok' if ok else 'FAULT: more than %.3g' % limit}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
