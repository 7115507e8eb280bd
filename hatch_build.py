"""Put only files that git tracks into a build; into a wheel also the JSON Schemas."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The place of each directory in the wheel; other directories are left out. A user's own directories
# of these names have precedence over the payload (trainyard/paths.py).
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
# The directory to which `# yaml-language-server: $schema=../../docs/...` of shipped files points.
SCHEMAS = "trainyard/payload/docs"
IGNORED = {".git", ".venv", "__pycache__", "dist", "PKG-INFO"}


class TrackedFiles(BuildHookInterface[Any]):  # type: ignore[misc]
    """Lists the files of a build one by one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files of a wheel or an sdist; an editable install uses the repository itself."""
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
        """Remove the schemas that were written for a wheel."""
        if self.target_name == "wheel" and version != "editable":
            self.written.cleanup()


def schemas(root: Path, directory: Path) -> list[Path]:
    """Write the schemas of this source tree, which is not installed; return their paths."""
    sys.path[:0] = [str(root), str(root / "runner")]
    sys.dont_write_bytecode = True
    from trainyard.spec import schema

    return schema.write(directory)


def tracked(root: Path) -> list[str]:
    """Return the files that git tracks; of an unpacked sdist, all files."""
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
    """Return a file's place in the wheel; None if it is left out."""
    for directory, place in IN_WHEEL.items():
        if name.startswith(f"{directory}/"):
            return place + name.removeprefix(directory)
    return None
