#!/usr/bin/env bash
# Compares Spillway with its peers on this machine: tests/bench/compare.sh [--models LIST] [--rounds
# N] [--precisions bf16,fp32]
#
# Installs torch, transformers and, where it builds, deepspeed (gigabytes) into a virtual
# environment outside of the project, which is removed at the end; PEERS=DIR keeps it in DIR for the
# next time. LLMC=DIR adds llm.c (peers/llmc_train.py says how it has to be built). Run it alone on
# the machine. Not part of the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."

peers=${PEERS:-}
if [ -z "$peers" ]; then
  peers=$(mktemp -d "${TMPDIR:-/tmp}/spillway-peers.XXXXXX")
  trap 'rm -rf "$peers"' EXIT
fi
if ! "$peers/bin/python" -c 'import torch, transformers' 2>/dev/null; then
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet torch transformers numpy
  "$peers/bin/pip" install --quiet deepspeed py-cpuinfo ninja || true  # listed as not run then
fi

cmake --preset release >/dev/null
cmake --build --preset release --target spillway >/dev/null
SPILLWAY_BINARY=$PWD/build/release/spillway "$peers/bin/python" tests/bench/compare.py "$@"
