"""Stand-ins for images that the tests cannot pull: the same paths, files and traps."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.bed.engine import BedEngine

HERE = Path(__file__).parent
ISAAC = "trainyard-standin/isaac:1"
ISAAC_LAB = "trainyard-standin/isaac_lab:1"
SCHOLA = "trainyard-standin/schola:1"
_BASES = {
    ISAAC: "trainyard-bed/base:1",
    ISAAC_LAB: "trainyard-bed/base:1",
    SCHOLA: "trainyard-bed/ray:1",
}


def ensure(engine: BedEngine, name: str) -> str:
    """Build a stand-in base unless the engine has an up-to-date one: about 60 s, once.

    Return the image's name.
    """
    source = HERE / name.partition("/")[2].partition(":")[0]
    base = engine.docker("image", "inspect", "--format", "{{.Id}}", _BASES[name]).stdout
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    content = hashlib.sha256(
        b"\0".join([base.encode(), *(path.read_bytes() for path in files)])
    ).hexdigest()[:12]
    found = engine.docker(
        "image", "inspect", "--format", '{{index .Config.Labels "standin"}}', name, check=False
    )
    if found.stdout.strip() != content:
        engine.docker(
            *("buildx", "build", "--load", "--network=host", "--label", f"standin={content}"),
            *("--tag", name, str(source)),
            seconds=480,
        )

    return name


def schola_contents(directory: Path) -> None:
    """Copy the stand-ins for Schola and a packaged game to the paths that images/schola expects."""
    shutil.copytree(HERE / "schola_package", directory / "schola", dirs_exist_ok=True)
    shutil.copytree(HERE / "unreal", directory / "unreal", dirs_exist_ok=True)
