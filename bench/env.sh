#!/usr/bin/env bash
# Prints the path of a Python with what a comparison needs, installing it into
# the user's cache first if it is not there: `bench/env.sh jax` or `torch`.
# TITAN_BENCH_JAX and TITAN_BENCH_TORCH name a Python that has it already.
# Never part of a build or a test.
set -euo pipefail
case ${1:-} in
jax) packages="jax==0.10.2 optax==0.2.8 numpy" have=${TITAN_BENCH_JAX:-} ;;
# For x86-64 pip has one build only, with CUDA (2.7 GB to download).
torch) packages="torch==2.15.0 numpy" have=${TITAN_BENCH_TORCH:-} ;;
*) echo "usage: bench/env.sh jax|torch" >&2; exit 2 ;;
esac
if [ -n "$have" ]; then echo "$have"; exit; fi
env=${XDG_CACHE_HOME:-$HOME/.cache}/titan/bench-$1
if [ "$(cat "$env/packages" 2>/dev/null)" != "$packages" ]; then
  echo "installing $packages into $env (for comparison only)" >&2
  python3 -m venv --clear "$env"
  # shellcheck disable=SC2086 # words
  "$env/bin/pip" install -q --disable-pip-version-check $packages >&2
  echo "$packages" > "$env/packages"
fi
echo "$env/bin/python"
