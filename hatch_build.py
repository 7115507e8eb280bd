"""What is built contains what git tracks, and nothing that happens to lie beside it; a wheel has
JSON Schemas, too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Where a directory of the repository is in the wheel; what else there is stays out of it. A user's
# own directories of the same names win over the payload (trainyard/paths.py).
IN_WHEEL = {"trainyard": "trainyard", "runner/trainyard_runner": "trainyard_runner"} | {
    name: f"trainyard/payload/{name}"
    for name in (
        "clusters",
        "compose",
        "images",
        "jobs",
        "kuberay",
        "microk8s",
        "project",
        "ray_autoscaler",
    )
}
# Where `# yaml-language-server: $schema=../../docs/...` of shipped files leads.
SCHEMAS = "trainyard/payload/docs"
IGNORED = {".git", ".venv", "__pycache__", "dist", "PKG-INFO"}


class TrackedFiles(BuildHookInterface[Any]):  # type: ignore[misc]
    """Names the files one by one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fill in the files of a wheel, or of an sdist; an editable install has the repository
        itself.
        """
        if version == "editable":
            return
        for name in tracked(Path(self.root)):
            target = name if self.target_name == "sdist" else in_wheel(name)
            if target:
                build_data["force_include"][name] = target
        if self.target_name == "wheel":
            self.written = tempfile.TemporaryDirectory()
            for path in schemas(Path(self.root), Path(self.written.name)):
                build_data["force_include"][str(path)] = f"{SCHEMAS}/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written for a wheel."""
        if self.target_name == "wheel" and version != "editable":
            self.written.cleanup()


def schemas(root: Path, directory: Path) -> list[Path]:
    """Write the schemas of this source tree, which is not installed; return their paths."""
    sys.path[:0] = [str(root), str(root / "runner")]
    sys.dont_write_bytecode = True
    from trainyard.spec import schema

    return schema.write(directory)


def tracked(root: Path) -> list[str]:
    """Return the files of a checkout that git tracks; an unpacked sdist has no others."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
        )
        names = listed.stdout.split("\0")
    else:
        names = [
            str(path.relative_to(root))
            for path in root.rglob("*")
            if not IGNORED & set(path.relative_to(root).parts)
        ]
    return sorted(name for name in names if (root / name).is_file())


def in_wheel(name: str) -> str | None:
    """Return where a file of the repository is in the wheel; None if it is not."""
    for directory, place in IN_WHEEL.items():
        if name.startswith(f"{directory}/"):
            return place + name.removeprefix(directory)
    return None
