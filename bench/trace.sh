#!/usr/bin/env bash
# Time from nothing to program text: a 32-layer unrolled Llama-like training step
# (widths of TorchTitan's debug model), traced, differentiated and printed by
# titan and by JAX, alternating on the same machine; the least of the runs
# counts. Both steps clip the gradient and end in AdamW.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-3}
python=$(bench/env.sh jax)
CGO_ENABLED=0 go test -c -o bin/bench/graph.test ./graph
best() { sort -g | head -1; }
ours= theirs=
for i in $(seq "$runs"); do
  o=$(bin/bench/graph.test -test.run '^$' -test.bench 'Trace32/plain' -test.benchtime 5x | awk '/ns\/op/ { print $3 / 1e9 }')
  t=$("$python" bench/jax_bench.py --layers 32 --dtype bf16 --trace-only 2>/dev/null | tail -1 | sed 's/.*"trace_lower_s": \([0-9.]*\).*/\1/')
  echo "run $i: titan $o s, JAX $t s"
  ours="$ours$o"$'\n' theirs="$theirs$t"$'\n'
done
o=$(printf %s "$ours" | best) t=$(printf %s "$theirs" | best)
echo "least of $runs: titan $o s, JAX $t s, ratio $(awk "BEGIN { printf \"%.3f\", $o / $t }")"
