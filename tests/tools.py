"""Bring what the tests use beyond Python packages; say beforehand what that is. `python -m tests.tools`, as root.

Groups of tests that this machine cannot run are left out, by name (tests/together.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bed import go_toolchain, programs
from tests.bed.__main__ import build
from tests.bed.places import CACHE, all_must_run, may_mount

# PROGRAM: the Debian packages that bring it. Tests without a Docker engine use these.
ON_THIS_MACHINE = {
    "chromium": ("chromium",),
    "ssh": ("openssh-client",),
    "vulkaninfo": ("vulkan-tools", "mesa-vulkan-drivers"),
}
# The tests' Docker engine is a second one: what runs here already is left alone.
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
    """This machine, as far as the tests' Docker engine goes; `missing` are programs of both tables above."""

    is_root: bool
    has_apt: bool
    runs_engines: bool
    has_go: bool
    is_built: bool
    missing: frozenset[str] = frozenset()


def look() -> Machine:
    """Look at this machine."""
    return Machine(
        is_root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None,
        runs_engines=may_mount(),
        has_go=go_toolchain.installed() is not None,
        is_built=programs.are_built(),
        missing=frozenset(name for name in {**ON_THIS_MACHINE, **FOR_THE_ENGINE} if shutil.which(name) is None),
    )


def obstacle(machine: Machine) -> str:
    """Return why the tests' Docker engine cannot run here; nothing if it can."""
    absent = sorted(machine.missing & FOR_THE_ENGINE.keys())
    if not machine.is_root:
        return "they need root, or sudo without a password"
    if not machine.runs_engines:
        return "they start a Docker engine, and this container may not (no CAP_SYS_ADMIN or no CAP_NET_ADMIN)"
    if absent and not machine.has_apt:
        return f"they need {', '.join(absent)}, and this system has no apt-get"
    return ""


def packages(machine: Machine) -> list[str]:
    """Return the Debian packages to install."""
    if not (machine.is_root and machine.has_apt):
        return []
    wanted: Mapping[str, Sequence[str]] = ON_THIS_MACHINE
    if not obstacle(machine):
        wanted = {**ON_THIS_MACHINE, **FOR_THE_ENGINE}
    return sorted(package for name, brought in wanted.items() if name in machine.missing for package in brought)


def announcement(machine: Machine) -> list[str]:
    """Return what is said before anything is installed or built."""
    said = []
    if packages(machine):
        said.append(f"installs Debian packages: {', '.join(packages(machine))}")
    if obstacle(machine):
        return [*said, f"installs no Docker engine: the tests that use one are left out, {obstacle(machine)}"]
    if not machine.has_go:
        said.append(f"downloads Go {go_toolchain.VERSION} (70 MB) into {go_toolchain.DIRECTORY}")
    if not machine.is_built:
        said.append(f"builds Kubernetes, KubeRay, Helm and images from their sources, into {CACHE}")
        said.append("the first time takes 20 to 35 minutes on 2 cores, and 10 GB; later it takes seconds")
    return said


def install(names: Sequence[str]) -> None:
    """Install Debian packages."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *names]):
        subprocess.run(["apt-get", "-qq", *command], check=True, env=environ, stdout=subprocess.DEVNULL)


def main() -> None:
    """Bring what is missing, where this machine lets us."""
    machine = look()
    for line in announcement(machine):
        print(f"make test: {line}", flush=True)
    if obstacle(machine) and all_must_run():
        sys.exit("error: TRAINYARD_TESTS=all: no test may be left out")

    if packages(machine):
        install(packages(machine))
    if not obstacle(machine):
        build()


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}\n  -> Repeat the same command: it continues where it stopped.")
