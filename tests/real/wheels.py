"""A wheel that tasks can have installed."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(directory: Path) -> None:
    """Write a wheel of one module that needs nothing else."""
    directory.mkdir(parents=True)
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(directory / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "WORDS = 'hello from a wheel'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
