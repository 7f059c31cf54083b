#!/usr/bin/env bash
# From nothing to a trained, killed, restarted and sampled model in a few minutes:
# jobs/quickstart.sh
#
# Installs what is missing (and says what), builds, and trains a GPT-2 of 10 million parameters on
# two ranks with all state on disk. Kills a rank in the middle, starts again with the same command,
# and lets the model write a few lines. Everything it makes lies in build/; it begins afresh each
# time. As root or as a user with sudo.
#
#   TEXT=FILE   learns that text (default: the King James Bible of Debian's package bible-kjv)
#   STEPS=N     optimizer steps (default 100)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

steps=${STEPS:-100}
work=build/quickstart
spillway=build/release/spillway

say "1. Packages"
jobs/install.sh run

say "2. Build: cmake --preset release && cmake --build --preset release"
mkdir -p build
build() { cmake --preset release -DSPILLWAY_TESTS=OFF && cmake --build --preset release; }
if ! build >build/release.log 2>&1; then
  tail -n 40 build/release.log >&2
  echo "The build failed; the whole log is build/release.log." >&2
  exit 1
fi
"$spillway" --version | head -n 1

say "3. Text to tokens"
rm -rf "$work"
mkdir -p "$work/swap"
if [ -n "${TEXT:-}" ]; then
  cp "$TEXT" "$work/all.txt"
else
  # Verses carry their reference in front ("Ge1:1 In the beginning ..."): only the words are wanted.
  bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[^ ]* //' >"$work/all.txt"
fi
lines=$(wc -l <"$work/all.txt")
[ "$lines" -gt 100 ] || { echo "Too little text ($lines lines in $work/all.txt)." >&2; exit 1; }
head -n $((lines * 9 / 10)) "$work/all.txt" >"$work/train.txt"
tail -n +$((lines * 9 / 10 + 1)) "$work/all.txt" >"$work/val.txt"
"$spillway" tokenize --out="$work/train.bin" "$work/train.txt"
"$spillway" tokenize --out="$work/val.bin" "$work/val.txt"

say "4. Training on two ranks, ZeRO-3, parameters, gradients and optimizer state on disk"
cat >"$work/config.json" <<'JSON'
{
  "model_type": "gpt2",
  "architectures": ["GPT2LMHeadModel"],
  "vocab_size": 257,
  "n_positions": 256,
  "n_embd": 320,
  "n_layer": 8,
  "n_head": 5,
  "activation_function": "gelu_new",
  "layer_norm_epsilon": 1e-05,
  "initializer_range": 0.02,
  "tie_word_embeddings": true,
  "bos_token_id": 256,
  "eos_token_id": 256
}
JSON
cat >"$work/run.cfg" <<CFG
[model]
config = $work/config.json
[data]
train = $work/train.bin
val = $work/val.bin
seq_len = 256
[train]
steps = $steps
global_batch = 8
micro_batch = 4
eval_every = 50
log_every = 10
threads = $(( $(nproc) > 1 ? $(nproc) / 2 : 1 ))
[optim]
lr = 3e-3
warmup_steps = 10
[zero]
stage = 3
[offload]
nvme = $work/swap
params = nvme
optimizer = nvme
gradients = nvme
[checkpoint]
every = 20
[run]
dir = $work/run
CFG

launch=(mpirun -np 2 --bind-to none)
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  echo "Started as root, which mpirun refuses by default; set for this run only:"
  echo "  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
fi
if ! "${launch[@]}" true >/dev/null 2>&1; then
  launch+=(--oversubscribe)
  echo "mpirun counts fewer than two cores here, so both ranks share one: --oversubscribe"
fi
train=("${launch[@]}" "$spillway" train --config "$work/run.cfg")
echo "${train[*]}"

metrics=$work/run/metrics.jsonl
steps_done() { if [ -f "$metrics" ]; then wc -l <"$metrics"; else echo 0; fi; }

"${train[@]}" &
job=$!
trap 'kill "$job" 2>/dev/null || true' EXIT
half=$((steps / 2 + 5))
while [ "$(steps_done)" -lt "$half" ] && kill -0 "$job" 2>/dev/null; do sleep 0.05; done
victim=$(ps -o pid=,comm= --ppid "$job" | awk '$2 == "spillway" {pid = $1} END {print pid}')
[ -n "$victim" ] || { echo "The run ended before it was to be killed." >&2; exit 1; }

say "5. kill -9 $victim: one of the two ranks dies after step $(steps_done)"
kill -9 "$victim"
code=0
wait "$job" || code=$?
newest=$(readlink "$work/run/checkpoints/latest")
echo "mpirun returned $code; the newest checkpoint is $newest"
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1"; }
losses "$metrics" >"$work/losses-before"

say "6. The same command again: it goes on from there"
echo "${train[*]}"
"${train[@]}" &
job=$!
wait "$job"
trap - EXIT
# The steps after the checkpoint were computed twice, in two processes: the same to the last digit?
losses "$metrics" | head -n "$(wc -l <"$work/losses-before")" >"$work/losses-after"
if cmp -s "$work/losses-before" "$work/losses-after"; then
  echo "The steps from $newest to the kill were computed twice: equal losses, bit for bit."
else
  echo "The steps after $newest gave other losses the second time:" >&2
  diff "$work/losses-before" "$work/losses-after" >&2 || true
  exit 1
fi

say "7. What came out"
losses "$metrics" | awk 'NR == 1 {printf "loss: %.4f at step %d", $2, $1}
                         END {printf ", %.4f at step %d\n", $2, $1}'
checkpoint=$work/run/checkpoints/$(readlink "$work/run/checkpoints/latest")
prompt=${PROMPT:-And the LORD said unto }
echo "a sample: spillway generate --checkpoint $checkpoint --prompt \"$prompt\" ..."
echo "----"
"$spillway" generate --checkpoint "$checkpoint" --prompt "$prompt" \
  --tokens 200 --temperature 0.8 --seed 1
echo "----"
cat <<END
run directory: $work/run (config.cfg, metrics.jsonl, checkpoints)
checkpoint:    $checkpoint
It is HDF5; every tensor is there whole, under its Hugging Face name:
  h5ls -r $checkpoint/index.h5
  h5dump -d /model/transformer.ln_f.weight $checkpoint/index.h5
END
