"""Trainyard's own installation: its source (PEP 610), its files as a wheel."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainyard import versions

# Files that an installer adds or rewrites.
_BY_INSTALLER = {
    "INSTALLER",
    "RECORD",
    "REQUESTED",
    "direct_url.json",
    "uv_build.json",
    "uv_cache.json",
}
# A fixed date, so that the same files make the same wheel; ZIP's first date.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Origin:
    """The source of an installation.

    `address` follows `@` in a pip requirement; "" if other machines cannot
    reach the source. `checkout` is the directory of an editable installation.
    If both are empty, only the installed files can be copied.
    """

    address: str = ""
    checkout: Path | None = None


def find() -> Distribution | None:
    """Return Trainyard's distribution; None if it is not installed."""
    try:
        return Distribution.from_name(versions.DISTRIBUTION)
    except PackageNotFoundError:
        return None


def source() -> str:
    """Return the source address that the installer recorded, "" if unknown."""
    distribution = find()
    direct_url = None
    if distribution:
        direct_url = distribution.read_text("direct_url.json")
    return str(json.loads(direct_url or "{}").get("url", ""))


def origin(direct_url: str | None) -> Origin:
    """Return the source that a direct_url.json names."""
    noted: Mapping[str, Any] = json.loads(direct_url or "{}")
    url = str(noted.get("url", ""))
    if not url:
        return Origin()

    parts = urlsplit(url)
    if parts.scheme == "file":
        if noted.get("dir_info", {}).get("editable", False):
            return Origin(checkout=Path(unquote(parts.path)))
        return Origin()

    of_git = noted.get("vcs_info")
    if of_git:
        address = f"{of_git['vcs']}+{url}@{of_git['commit_id']}"
    else:
        address = url

    fragments = []
    if noted.get("subdirectory"):
        fragments.append(f"subdirectory={noted['subdirectory']}")
    hashes = noted.get("archive_info", {}).get("hashes") or {}
    checksums = [f"{name}={value}" for name, value in hashes.items()]
    fragments += checksums[:1]
    if fragments:
        address = f"{address}#{'&'.join(fragments)}"
    return Origin(address=address)


def write_wheel(distribution: Distribution, directory: Path) -> Path:
    """Write a wheel of the files in the installation's RECORD; return its path.

    Raises OSError without a RECORD, for a missing file or an unwritable
    directory.
    """
    if not distribution.files:
        raise FileNotFoundError("no RECORD says which files are installed")

    names = sorted(str(file) for file in distribution.files if _is_of_wheel(str(file)))
    info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    paths = {name: Path(str(distribution.locate_file(name))) for name in names}
    contents = {name: path.read_bytes() for name, path in paths.items()}
    programs = {name for name, path in paths.items() if path.stat().st_mode & stat.S_IXUSR}

    rows = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}")
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()

    tag = _tag(contents[f"{info}/WHEEL"])
    path = directory / f"{info.removesuffix('.dist-info')}-{tag}.whl"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (stat.S_IFREG | (0o755 if name in programs else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return path


def _is_of_wheel(name: str) -> bool:
    """Say whether the wheel had this file, or the installer added it."""
    path = Path(name)
    is_outside = path.is_absolute() or ".." in path.parts
    is_note = ".dist-info/" in name and path.name in _BY_INSTALLER
    return not is_outside and not is_note and path.suffix != ".pyc"


def _tag(wheel: bytes) -> str:
    lines = wheel.decode().splitlines()
    return next(line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: "))
