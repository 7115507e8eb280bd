#!/bin/bash
# Start a program on this task's node as `torchrun` does: bash torchrun.sh train.py [WORDS...]
#
# It starts one process for each GPU of the task, or one without GPUs. The tasks of a job with `together: true` are torchrun's nodes.
# Any program for torchrun works: torchrun sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
set -eu

IFS=, read -r -a gpus <<< "${CUDA_VISIBLE_DEVICES:-}"
processes=${#gpus[@]}
[ "$processes" -gt 0 ] || processes=1

# The port is the same for all tasks of an attempt, and differs between runs.
id="${TRAINYARD_RUN:-} ${TRAINYARD_ATTEMPT:-}"
port=$((20000 + $(printf %s "$id" | cksum | cut -d' ' -f1) % 10000))

# `python`: the torchrun of this node's environment, whichever is first on PATH.
exec python -m torch.distributed.run \
  --nnodes="${TRAINYARD_TASK_COUNT:-1}" --node-rank="${TRAINYARD_TASK_INDEX:-0}" --nproc-per-node="$processes" \
  --master-addr="${TRAINYARD_MASTER_ADDR:-127.0.0.1}" --master-port="$port" "$@"
