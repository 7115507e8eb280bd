#!/bin/bash
# Start a program on this task's node as `torchrun` does: bash torchrun.sh train.py [WORDS...]
#
# A process for each GPU of the task, one where it has none. The tasks of a job with `together: true` are torchrun's nodes.
# Any program for torchrun works: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are torchrun's.
set -eu

IFS=, read -r -a gpus <<< "${CUDA_VISIBLE_DEVICES:-}"
processes=${#gpus[@]}
[ "$processes" -gt 0 ] || processes=1

# All tasks of an attempt come to the same port, and another run to another one.
id="${TRAINYARD_RUN:-} ${TRAINYARD_ATTEMPT:-}"
port=$((20000 + $(printf %s "$id" | cksum | cut -d' ' -f1) % 10000))

# `python`: the torchrun of this node's environment, whichever is first on PATH.
exec python -m torch.distributed.run \
  --nnodes="${TRAINYARD_TASK_COUNT:-1}" --node-rank="${TRAINYARD_TASK_INDEX:-0}" --nproc-per-node="$processes" \
  --master-addr="${TRAINYARD_MASTER_ADDR:-127.0.0.1}" --master-port="$port" "$@"
