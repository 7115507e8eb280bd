"""Write a wheel that tasks can have installed."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(
    directory: Path, name: str = "greeting", text: str = "WORDS = 'hello from a wheel'\n"
) -> str:
    """Write a wheel of one module that needs nothing else; return the name of its file."""
    directory.mkdir(parents=True, exist_ok=True)
    file, info = f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(directory / file, "w") as wheel:
        wheel.writestr(f"{name}.py", text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return file
