"""Install or build what the tests use besides Python packages, after announcing it. As root.

`python -m tests.tools TIER ...`. Lanes that this machine cannot run are left out, and named
(tests/together.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tests.bed import bed, go_toolchain, images, layers, mlflow, plugins, programs
from tests.bed.places import CACHE, may_mount
from tests.tiers import TIERS, lanes

AGAIN = "  -> Repeat the same command: it continues where it stopped."

# PROGRAM: the Debian packages that have it. Tests without a Docker engine use these.
ON_THIS_MACHINE = {
    "chromium": ("chromium",),
    "ssh": ("openssh-client",),
    "vulkaninfo": ("vulkan-tools", "mesa-vulkan-drivers"),
}
# The tests start a Docker engine of their own: one that already runs on the machine is not touched.
FOR_THE_ENGINE = {
    "dockerd": ("docker.io",),
    "unpigz": ("pigz",),
    "docker-registry": ("docker-registry",),
    "mmdebstrap": ("mmdebstrap", "debian-archive-keyring"),
    "ip": ("iproute2",),
    "rsync": ("rsync",),
}


@dataclass(frozen=True)
class Machine:
    """The facts about this machine that the tests need; `missing` are of both tables above."""

    is_root: bool
    has_apt: bool
    runs_engines: bool
    has_go: bool
    has_images: bool
    has_kubernetes: bool
    missing: frozenset[str] = frozenset()


def look() -> Machine:
    """Find out what this machine has and may do."""
    return Machine(
        is_root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None,
        runs_engines=may_mount(),
        has_go=go_toolchain.installed() is not None,
        has_images=plugins.are_there() and images.has_base(),
        has_kubernetes=programs.are_built(),
        missing=frozenset(
            name for name in {**ON_THIS_MACHINE, **FOR_THE_ENGINE} if shutil.which(name) is None
        ),
    )


def obstacle(machine: Machine) -> str:
    """Return why the tests' Docker engine cannot run here; an empty text if it can."""
    absent = sorted(machine.missing & FOR_THE_ENGINE.keys())
    if not machine.is_root:
        return "they need root, or sudo without a password"
    if not machine.runs_engines:
        return (
            "they start a Docker engine, and this container may not (no CAP_SYS_ADMIN or no "
            "CAP_NET_ADMIN)"
        )
    if absent and not machine.has_apt:
        return f"they need {', '.join(absent)}, and this system has no apt-get"
    return ""


def packages(machine: Machine) -> list[str]:
    """Return the Debian packages to install for the tests that can run here."""
    if not (machine.is_root and machine.has_apt):
        return []
    wanted: Mapping[str, Sequence[str]] = ON_THIS_MACHINE
    if not obstacle(machine):
        wanted = {**ON_THIS_MACHINE, **FOR_THE_ENGINE}
    return sorted(
        package
        for name, brought in wanted.items()
        if name in machine.missing
        for package in brought
    )


def announcement(machine: Machine, uses: Collection[str]) -> list[str]:
    """Return the lines that announce what these supplies will install, download or build."""
    said = []
    if packages(machine) and "packages" in uses:
        said.append(f"installs Debian packages: {', '.join(packages(machine))}")

    if "images" in uses and obstacle(machine):
        return [
            *said,
            f"installs no Docker engine: the tests that use one are left out, {obstacle(machine)}",
        ]

    builds_images = "images" in uses and not machine.has_images
    builds_kubernetes = "kubernetes" in uses and not machine.has_kubernetes
    if (builds_images or builds_kubernetes) and not machine.has_go:
        said.append(f"downloads Go {go_toolchain.VERSION} (70 MB) into {go_toolchain.DIRECTORY}")

    if builds_images:
        said.append(
            f"builds Docker's plugins, a Debian and Ray's image, into {CACHE}: 5 minutes and 4 "
            "GB, once"
        )

    if builds_kubernetes:
        said.append(
            f"builds Kubernetes, KubeRay and Helm from their sources, into {CACHE}: 25 minutes "
            "and 6 GB, once"
        )

    return said


def install(names: Sequence[str]) -> None:
    """Install Debian packages."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *names]):
        subprocess.run(
            ["apt-get", "-qq", *command], check=True, env=environ, stdout=subprocess.DEVNULL
        )


def _packages(machine: Machine) -> None:
    if packages(machine):
        install(packages(machine))


def _images(_: Machine) -> None:
    with bed.shared_engine():
        pass


def _kubernetes(_: Machine) -> None:
    for program in programs.KUBERNETES_PROGRAMS:
        programs.ensure(program)
    programs.kuberay_crds()
    with bed.shared_engine() as engine:
        images.ensure_host(engine)
        images.ensure_host_image(engine, images.KUBE_HOST)
        layers.ensure(engine)
        images.ensure_ray_gpu(engine)


def _microk8s(_: Machine) -> None:
    with bed.shared_engine() as engine:
        images.ensure_host_image(engine, images.MICROK8S_HOST)


def _ec2(_: Machine) -> None:
    with bed.shared_engine() as engine:
        images.ensure_ec2(engine)


def _mlflow(_: Machine) -> None:
    mlflow.python()


# In this order: later entries use earlier ones.
SUPPLIES: Mapping[str, Callable[[Machine], None]] = {
    "packages": _packages,
    "mlflow": _mlflow,
    "images": _images,
    "kubernetes": _kubernetes,
    "microk8s": _microk8s,
    "ec2": _ec2,
}


class Supplies:
    """Things that lanes use besides Python packages; each is installed or built at most once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._brought: set[str] = set()
        self._locks = {name: threading.Lock() for name in SUPPLIES}

    def bring(self, names: Collection[str]) -> None:
        """Install or build these supplies; raises RuntimeError and SubprocessError."""
        for name, bring in SUPPLIES.items():
            if name not in names:
                continue
            with self._locks[name]:
                if name not in self._brought:
                    bring(self._machine)
                    self._brought.add(name)


def main(tiers: Sequence[str]) -> None:
    """Install or build what these tiers use; by default, what all tiers use."""
    machine = look()
    chosen = lanes(tiers or TIERS)
    for line in announcement(machine, {use for lane in chosen for use in lane.uses}):
        print(f"make test-tools: {line}", flush=True)
    possible = [lane for lane in chosen if not (lane.has_engine and obstacle(machine))]
    Supplies(machine).bring({use for lane in possible for use in lane.uses})


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}\n{AGAIN}")
