"""How Trainyard was installed here: from which address (PEP 610), and its files as a wheel."""

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

# What an installer adds to the files of a wheel, or writes in its own way.
_BY_INSTALLER = {
    "INSTALLER",
    "RECORD",
    "REQUESTED",
    "direct_url.json",
    "uv_build.json",
    "uv_cache.json",
}
# The same files make the same wheel. Not 1970: ZIP begins in 1980.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Origin:
    """Where an installation came from.

    `address` is what pip takes behind `@`, where other machines can reach it; `checkout` is the
    directory of an editable installation. With neither, the installed files are all that there is.
    """

    address: str = ""
    checkout: Path | None = None


def find() -> Distribution | None:
    """Return what is installed of Trainyard; None where it is used without an installation."""
    try:
        return Distribution.from_name(versions.DISTRIBUTION)
    except PackageNotFoundError:
        return None


def source() -> str:
    """Return the address that it was installed from, as the installer wrote it down; "" where none
    is known.
    """
    distribution = find()
    direct_url = None
    if distribution:
        direct_url = distribution.read_text("direct_url.json")
    return str(json.loads(direct_url or "{}").get("url", ""))


def origin(direct_url: str | None) -> Origin:
    """Return where an installation came from, by its direct_url.json; None: the installer wrote
    none.
    """
    found: Mapping[str, Any] = json.loads(direct_url or "{}")
    url = str(found.get("url", ""))
    of_git = found.get("vcs_info")
    parts = urlsplit(url)
    if parts.scheme == "file":
        is_editable = found.get("dir_info", {}).get("editable", False)
        return Origin(checkout=Path(unquote(parts.path)) if is_editable else None)
    if not url:
        return Origin()

    if found.get("subdirectory"):
        where = f"subdirectory={found['subdirectory']}"
    else:
        where = ""

    if of_git:
        address = f"{of_git['vcs']}+{url}@{of_git['commit_id']}"
    else:
        address = url

    of_archive = found.get("archive_info", {})
    hashes = of_archive.get("hashes") or dict(
        [of_archive["hash"].split("=", 1)] if "hash" in of_archive else []
    )
    sums = [f"{name}={value}" for name, value in hashes.items()]
    fragment = "&".join(filter(None, [where, *sums[:1]]))

    return Origin(address=f"{address}#{fragment}" if fragment else address)


def write_wheel(distribution: Distribution, directory: Path) -> Path:
    """Write a wheel of the files that are installed, as its RECORD lists them; return its path.

    Raises OSError for a file that does not exist any more, or a directory that cannot be written.
    """
    if not distribution.files:
        raise FileNotFoundError("no RECORD says which files are installed")

    names = sorted(str(file) for file in distribution.files if _is_of_wheel(str(file)))
    info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    paths = {name: Path(str(distribution.locate_file(name))) for name in names}
    contents = {name: path.read_bytes() for name, path in paths.items()}
    programs = {name for name, path in paths.items() if path.stat().st_mode & stat.S_IXUSR}
    rows = [
        f"{name},sha256={_digest(content)},{len(content)}" for name, content in contents.items()
    ]
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = directory / f"{info.removesuffix('.dist-info')}-{_tag(contents[f'{info}/WHEEL'])}.whl"
    directory.mkdir(parents=True, exist_ok=True)

    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (stat.S_IFREG | (0o755 if name in programs else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)

    return path


def _is_of_wheel(name: str) -> bool:
    """Say whether the wheel had this file: installers compile, and write scripts and notes of their
    own.
    """
    path = Path(name)
    is_outside = path.is_absolute() or ".." in path.parts
    is_note = ".dist-info/" in name and path.name in _BY_INSTALLER
    return not is_outside and not is_note and path.suffix != ".pyc"


def _tag(wheel: bytes) -> str:
    lines = wheel.decode().splitlines()
    return next(line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: "))


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
