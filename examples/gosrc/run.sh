#!/usr/bin/env bash
# A mixture of experts learns the source code of the Go toolchain on eight
# virtual devices: prepare the data, train, interrupt, go on, sample.
# What it makes is in outputs/; run it again and it goes on from there.
set -euo pipefail
cd "$(dirname "$0")/../.."
titan=bin/titan
data=outputs/gosrc
run=outputs/qwen3_moe_debug
stop_at=${STOP_AT:-100} # the step after which the run is interrupted once

say() { printf '\n== %s\n' "$*"; }

if [ ! -e "$data/tokens.idx" ] || [ ! -e "$data/tokens_validation.idx" ]; then
  say "data: the Go source code of $(go env GOROOT)/src"
  # Hand-written code; generated tables would be a large part of it otherwise.
  choose=(--include '*.go' --exclude vendor --exclude testdata --exclude 'rewrite*.go' --exclude opGen.go
    --exclude 'z*.go' --exclude '*tables*.go' --exclude '*_table.go')
  $titan data train-tokenizer "$(go env GOROOT)/src" "${choose[@]}" --vocab-size 2048 --output $data/tokenizer
  $titan data prepare "$(go env GOROOT)/src" "${choose[@]}" --tokenizer $data/tokenizer --output $data/tokens --validation 0.02
fi
say "the data's entropy: what a model reaches that knows the frequency of each token and nothing else"
$titan data inspect $data/tokens_validation | grep -i entropy

train=("$titan" train --config qwen3_moe_debug "$@")

if [ ! -d "$run/checkpoint" ]; then
  say "train until step $stop_at, then press Ctrl-C"
  log=$(mktemp)
  set -m # else the shell would let background processes ignore Ctrl-C
  "${train[@]}" > >(tee "$log") &
  pid=$!
  set +m
  trap 'kill -INT $pid 2>/dev/null; rm -f "$log"' EXIT
  while kill -0 $pid 2>/dev/null && ! grep -Eq "^step: *$stop_at " "$log"; do sleep 0.2; done
  kill -INT $pid 2>/dev/null || true
  code=0
  wait $pid || code=$?
  trap - EXIT
  rm -f "$log"
  # 130: interrupted, with everything saved.
  [ $code -eq 130 ] || [ $code -eq 0 ] || exit $code
fi
say "the same command again: it goes on where it was"
"${train[@]}"

say "sample"
$titan generate --config qwen3_moe_debug --prompt $'func main() {\n' --max-tokens 120 --temperature 0.7 --seed 1
