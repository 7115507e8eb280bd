#!/bin/bash
# What to try on a host with a GPU before a cluster runs this image: check-on-a-gpu-host.sh IMAGE /opt/unreal/NAME.sh
#
# IMAGE is what `trainyard image.build schola` printed. The host has NVIDIA's driver, Docker, and NVIDIA's container
# toolkit. Each step says what it should print, and the first that fails is the last.
set -euo pipefail
image=${1:?usage: $0 IMAGE /opt/unreal/NAME.sh}
script=${2:?usage: $0 IMAGE /opt/unreal/NAME.sh}
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

# By vulkan_core.h: sType 1 is VkInstanceCreateInfo's, a device's type is its fifth number (4: a CPU), then comes its name.
step "Vulkan finds a GPU that renders" "each GPU's name, and no CPU alone" \
    in_image python - <<'END'
import ctypes

vulkan = ctypes.CDLL("libvulkan.so.1")
instance, count = ctypes.c_void_p(), ctypes.c_uint32()
assert vulkan.vkCreateInstance((ctypes.c_uint32 * 16)(1), None, ctypes.byref(instance)) == 0
vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
devices = (ctypes.c_void_p * count.value)()
vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
found = []
for device in devices:
    properties = (ctypes.c_uint32 * 512)()
    vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
    print(bytes(properties)[20:276].split(b"\0")[0].decode(), "a CPU" if properties[4] == 4 else "")
    found.append(properties[4])
assert set(found) - {4}, "NVIDIA_DRIVER_CAPABILITIES=all mounts the driver's part; some GPUs have none"
END

step "Ray sees the GPUs" "a line that ends with GPU: 0.0/N, of N GPUs" \
    in_image bash -c 'ray start --head --disable-usage-stats > /dev/null && ray status | grep GPU'

step "RLlib takes what Schola asks" "schola-train: would train, with ..." \
    in_image schola-train --check

step "the game renders and PPO trains in it" "Training complete" \
    in_image schola-train --timesteps=1000 --n-steps=200 --mini-batch-size=100 --checkpoint-dir=/tmp/ckpt \
    --launch-unreal --unreal-path="$script"

echo "all is well"
