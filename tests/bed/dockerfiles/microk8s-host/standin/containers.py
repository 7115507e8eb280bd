"""The containers that the host's containerd runs."""

from __future__ import annotations

import subprocess

from standin.places import CONTAINERD, wait_until


def remove_all() -> None:
    """End and remove every container, as `microk8s stop` does."""
    socket = ("-n", "k8s.io")
    listed = _ctr(*socket, "tasks", "ls", "-q")
    for name in listed.split():
        _ctr(*socket, "tasks", "kill", "-s", "SIGKILL", name)
    wait_until(lambda: not _ctr(*socket, "tasks", "ls").count("RUNNING"), 10)
    for name in listed.split():
        _ctr(*socket, "tasks", "rm", "-f", name)
    for name in _ctr(*socket, "containers", "ls", "-q").split():
        _ctr(*socket, "containers", "rm", name)


def wait() -> None:
    """Wait until containerd answers."""
    wait_until(
        lambda: _ctr("plugins", "ls").count("io.containerd.grpc.v1") > 0 and CONTAINERD.exists(), 30
    )


def _ctr(*arguments: str) -> str:
    command = ["ctr", "--address", str(CONTAINERD), *arguments]
    return subprocess.run(command, capture_output=True, text=True).stdout
