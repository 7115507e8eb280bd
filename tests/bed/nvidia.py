"""Stand-in for NVIDIA's nvidia-smi."""

from __future__ import annotations

from pathlib import Path

SMI = """#!/bin/sh
{body}
"""
NO_DRIVER = (
    "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    'Make sure that the latest NVIDIA driver is installed and running."; exit 9'
)


def driver(directory: Path, *, gpus: int) -> None:
    """Write an nvidia-smi to `directory` that lists `gpus` GPUs.

    With none, it fails as the real program does without its driver.
    """
    lines = "\n".join(f"echo {index}" for index in range(gpus))
    _write(directory / "nvidia-smi", SMI.format(body=lines or NO_DRIVER))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
