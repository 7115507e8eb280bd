"""Snap files, their assertions, and snapd's records of installed snaps.

A snap other than MicroK8s consists of these records only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from standin.places import BED

SNAPS = Path("/var/lib/snapd/snaps")
MOUNTS = Path("/snap")
# {SHA3-384 of a file: its revision}, from all acknowledged snap-revision assertions.
ASSERTIONS = Path("/var/lib/snapd/standin-assertions.json")
OTHERS = Path("/var/lib/snapd/standin-others.json")
# The version of a host's snapd, and the version while its daemon does not run. /etc/bed/snapd may
# set another version, or AWAY.
VERSION, AWAY = "2.72", "unavailable"
# The first bytes of a squashfs. In a stand-in's file, the content of its meta/snap.yaml follows.
MAGIC = "hsqs\n"
BASES = {"core22": ("20250730", "2045")}
# snapd's message when it reaches no store.
NO_STORE = (
    'Post "https://store.invalid/v2/snaps/refresh": dial tcp: lookup store.invalid: no such host'
)


@dataclass(frozen=True)
class Other:
    """A snap other than MicroK8s: a base, or snapd."""

    name: str
    version: str
    revision: str
    channel: str = "-"
    kind: str = "base"


def refuse(message: str, code: int = 1) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def refuse_filled(message: str) -> NoReturn:
    """Refuse in lines of 79 characters, as snapd folds its daemon's errors (cmd_help.go, fill)."""
    lines = textwrap.wrap(message, 72, break_on_hyphens=False, break_long_words=False)
    refuse("\n       ".join(lines))


def refuse_task(task: str, reason: str) -> NoReturn:
    refuse(f"cannot perform the following tasks:\n- {task} ({reason})")


def is_offline() -> bool:
    return (BED / "offline").exists()


def is_file(word: str) -> bool:
    """Say whether `snap install` takes a word for a file (cmd_snap_op.go, isLocalContainer)."""
    return "/" in word or word.endswith(".snap") or ".snap." in word


def acknowledge(words: Sequence[str]) -> None:
    """Acknowledge the assertions in a file: `snap ack FILE`."""
    if not words:
        refuse("the required argument `<assertion file>` was not provided")

    try:
        text = Path(words[0]).read_text()
    except OSError as error:
        refuse(f"cannot assert: open {words[0]}: {os.strerror(error.errno or 0).lower()}")

    blocks = [block for block in text.split("\n\n") if block.startswith("type: ")]
    if not blocks:
        refuse(
            "cannot assert: cannot decode request body into assertions: parsing assertion headers"
        )

    found = _acknowledged()
    for headers in (dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks):
        if headers["type"] == "snap-revision":
            found[headers["snap-sha3-384"]] = headers["snap-revision"]

    ASSERTIONS.parent.mkdir(parents=True, exist_ok=True)
    ASSERTIONS.write_text(json.dumps(found))


def revision_of(path: str, installed: str, *, dangerous: bool) -> str:
    """Return the revision of a file: its assertion's, or the next x1, x2... if `dangerous`.

    Refuse a file without an assertion unless it is `dangerous`.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        refuse(f'cannot open "{path}": open {path}: {os.strerror(error.errno or 0).lower()}')
    if dangerous:
        return f"x{int(installed.removeprefix('x')) + 1 if installed.startswith('x') else 1}"
    revision = _acknowledged().get(digest(content))
    if revision is None:
        refuse_filled(
            f'cannot find signatures with metadata for snap/component "{Path(path).name}"'
        )
    return revision


def digest(content: bytes) -> str:
    """Return the digest by which an assertion identifies a file."""
    return base64.urlsafe_b64encode(hashlib.sha3_384(content).digest()).decode()


def read(path: str) -> dict[str, str]:
    """Return the keys of a file's meta/snap.yaml: name, version and base."""
    text = Path(path).read_bytes()
    if not text.startswith(MAGIC.encode()):
        refuse_filled(
            f'cannot read snap file: cannot process snap or snapdir: file "{path}" is invalid'
        )
    return dict(yaml.safe_load(text.removeprefix(MAGIC.encode())))


def keep(name: str, revision: str, *, source: str = "", version: str = "") -> None:
    """Store the file of an installed snap, and mount it; `/snap/NAME/current` links to it."""
    forget(name)
    SNAPS.mkdir(parents=True, exist_ok=True)
    file = SNAPS / f"{name}_{revision}.snap"
    if source:
        shutil.copy(source, file)
    else:
        file.write_text(f"{MAGIC}name: {name}\nversion: {version}\n")
    mounted = MOUNTS / name / revision
    mounted.mkdir(parents=True, exist_ok=True)
    (MOUNTS / name / "current").symlink_to(revision)


def forget(name: str) -> None:
    """Remove all files of a snap."""
    for file in SNAPS.glob(f"{name}_*.snap"):
        file.unlink()
    shutil.rmtree(MOUNTS / name, ignore_errors=True)


def others() -> list[Other]:
    """Return the installed snaps other than MicroK8s.

    The snap of snapd is one of them unless the test has set the version of the machine's snapd.
    """
    found = [Other(**each) for each in json.loads(OTHERS.read_text())] if OTHERS.exists() else []
    is_there = any(each.name == "snapd" for each in found) or (BED / "snapd").exists()
    return (
        found if is_there else [*found, Other("snapd", VERSION, "25577", "latest/stable", "snapd")]
    )


def has(name: str) -> bool:
    return any(each.name == name for each in others())


def add(new: Other, *, source: str = "") -> None:
    """Install a snap other than MicroK8s, in place of one with the same name."""
    keep(new.name, new.revision, source=source, version=new.version)
    kept = [each for each in others() if each.name != new.name]
    OTHERS.write_text(json.dumps([asdict(each) for each in (*kept, new)]))


def need_prerequisites(name: str, base: str) -> None:
    """Install a snap's missing prerequisites from the store: its base, and the snap of snapd.

    A distribution's own snapd does not count as the snap of snapd.
    """
    for what, needed in (("snap base", base), ("system snap", "snapd")):
        if not needed or has(needed):
            continue
        if is_offline():
            refuse_task(
                f'Ensure prerequisites for "{name}" are available',
                f'cannot install {what} "{needed}": {NO_STORE}',
            )
        add(from_store(needed))


def from_store(name: str) -> Other:
    """Return a base, or snapd, in the version of the store."""
    if name == "snapd":
        return Other("snapd", VERSION, "25577", "latest/stable", "snapd")
    version, revision = BASES[name]
    return Other(name, version, revision, "latest/stable")


def _acknowledged() -> dict[str, str]:
    return dict(json.loads(ASSERTIONS.read_text())) if ASSERTIONS.exists() else {}
