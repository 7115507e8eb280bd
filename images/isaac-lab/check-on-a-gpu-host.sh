#!/bin/bash
# What to try on a host with a GPU before a cluster runs this image: check-on-a-gpu-host.sh IMAGE
#
# IMAGE is what `trainyard image.build isaac-lab` printed. The host has NVIDIA's driver, Docker, and NVIDIA's container
# toolkit. Each step says what it should print, and the first that fails is the last.
set -euo pipefail
image=${1:?usage: $0 IMAGE}
variables=()

step() {
    printf '\n== %s\n   should print: %s\n' "$1" "$2"
    shift 2
    "$@"
}

in_image() {
    docker run --rm --interactive --gpus all --shm-size 2g "${variables[@]}" "$image" "$@"
}

step "the driver is in the container" "each GPU of this host" \
    in_image nvidia-smi -L

step "torch computes on every GPU" "its version, that of CUDA, then each GPU's name and 64.0" \
    in_image python - <<'END'
import torch

print(torch.__version__, torch.version.cuda)
assert torch.cuda.is_available(), "torch finds no GPU: is the driver too old for this CUDA?"
for gpu in range(torch.cuda.device_count()):
    a = torch.full((256, 256), 0.5, device=f"cuda:{gpu}")
    print(torch.cuda.get_device_name(gpu), float((a @ a)[0, 0]))
END

step "Ray sees the GPUs" "a line that ends with GPU: 0.0/N, of N GPUs" \
    in_image bash -c 'ray start --head --disable-usage-stats > /dev/null && ray status | grep GPU'

step "Isaac Lab trains" "five iterations, then the end of the training" \
    in_image python /workspace/isaaclab/scripts/reinforcement_learning/train.py --rl_library=rsl_rl \
    --task=Isaac-Cartpole-Direct-v0 --num_envs=64 --max_iterations=5 --headless

echo "all is well"
