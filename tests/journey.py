"""The journey of a job's files: sent, changed by a task, seen by the next attempt, run and home.

The tree, and what a task does to it, are random (hypothesis). The same changes in a plain directory
give the expected result.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, strategies
from trainyard_runner.node.job_files import JobFiles, changed
from trainyard_runner.node.outputs import OutputWatch
from trainyard_runner.node.workspace import Spare, Workspace
from trainyard_runner.wire import archive, outputs

from tests.deeds import Deed, Seen, do, seen
from trainyard.dispatch.package import listing, pack

END = bytes(1024)
NAMES = ("a", "b", "model", "out", "ü", "sp ace", "-x", "*.pt", "new\nline", ".hidden")
# The target of links in a job directory, besides the directory's own files.
LIBRARY = "lib"

name = strategies.sampled_from(NAMES)
path = strategies.lists(name, min_size=1, max_size=3).map("/".join)
# Some bytes, or a number of zero bytes; large files travel in another way than small ones.
content = strategies.one_of(strategies.binary(max_size=20), strategies.sampled_from((0, 1_100_000)))
# A task's deed: (word, path, content) or (word, path, second path).
deed = strategies.one_of(
    strategies.tuples(strategies.sampled_from(("write", "append", "replace")), path, content),
    strategies.tuples(strategies.sampled_from(("rename", "link", "hard link")), path, path),
    strategies.tuples(
        strategies.sampled_from(("remove", "make directory", "make executable")), path, path
    ),
)
deeds = strategies.lists(deed, max_size=8)
# An entry of a job directory: (kind, path, content) or (kind, path, second path).
thing = strategies.one_of(
    strategies.tuples(strategies.sampled_from(("write", "write", "write")), path, content),
    strategies.tuples(
        strategies.sampled_from(("hard link", "make directory", "make executable")), path, path
    ),
    strategies.tuples(
        strategies.sampled_from(("link to file", "link to library", "link outside")), path, path
    ),
)
things = strategies.lists(thing, max_size=10)
declared_paths = strategies.lists(path, max_size=3, unique=True)
journeys = given(job=things, first=deeds, second=deeds, declared=declared_paths)


def make(directory: Path, things: list[Deed]) -> None:
    """Make a job directory with these entries, except entries below a link."""
    outside = directory.parent / "outside"
    for library in (directory / LIBRARY, outside):
        library.mkdir(parents=True)
        (library / "code.py").write_text("code")

    for what, at, other in things:
        place = directory / at
        target = {
            "link to file": directory / LIBRARY / "code.py",
            "link to library": directory / LIBRARY,
            "link outside": outside,
        }.get(what)

        # Nothing is made through a link: that could make circles, which are not sent but named.
        if place.parent.resolve() != place.parent or (
            what == "hard link" and (directory / other).is_symlink()
        ):
            continue
        if target is None:
            do(directory, (what, at, other))
            continue

        do(directory, ("make directory", str(Path(at).parent), ""))
        if place.parent.is_dir() and not os.path.lexists(place):
            place.symlink_to(target)


def as_sent(directory: Path, target: Path) -> None:
    """Copy a job directory as docs say that it is sent: a link becomes what it leads to."""
    shutil.copytree(directory, target, symlinks=False)


@dataclass
class Attempt:
    """One attempt on a node: its working directory, and its outputs as archives."""

    place: Workspace
    copied: dict[str, Any]
    declared: list[str]

    @property
    def directory(self) -> Path:
        return self.place.directory

    def scan(self) -> tuple[archive.Entries, list[archive.LeftOut]]:
        entries: archive.Entries = {}
        left_out: list[archive.LeftOut] = []
        for declared in self.declared:
            found, outside = archive.scan_one(str(self.directory / declared), declared)
            entries.update(found)
            left_out += outside
        return archive.without_loose_links(entries, left_out), left_out

    def sent_home(self) -> tuple[list[bytes], list[str]]:
        watch = OutputWatch(self.scan, every=30, limit=10**9, held=None)
        messages = list(watch.last())
        left_out = [item.name for item in watch.left_out]
        return [part for kind, part in messages if kind == "outputs-part"], left_out

    def undeclared(self) -> list[str]:
        return changed(self.directory, self.copied, declared=self.declared)


class Node:
    """A node to which a job directory was sent."""

    def __init__(self, home: Path, job: Path) -> None:
        self.home = home
        package = pack(listing(job))
        whole = b"".join(package.read(part) for part in range(len(package.parts)))
        self.files = JobFiles(home / "packages", package.name, lambda: whole)
        self._number = 0
        self._spare = Spare()

    def begin(self, declared: list[str], *, restored: list[bytes] | None = None) -> Attempt:
        """Begin an attempt; `restored` are the archives that the attempt before sent home."""
        self._number += 1
        before = [{"removed": [], "parts": [*restored, END]}] if restored else []
        order: Any = {
            "task": "t",
            "attempt": self._number,
            "checkpoint": [],
            "restored": before,
            "outputs": declared,
        }
        place = Workspace(self.home, order, self._spare)
        place.restore(order, lambda parts: iter(parts))
        return Attempt(place, place.copy_files(self.files, declared), declared)


def brought_home(parts: list[bytes], home: Path) -> None:
    home.mkdir()
    if parts:
        outputs.apply(io.BytesIO(b"".join([*parts, END])), home, removed=[])


def around(sent: Seen, restored: Seen) -> Seen:
    """Return an attempt's first files: those restored from the attempt before, over the job's."""
    found = dict(restored)
    for at in sorted(restored):
        found |= {str(parent): ("directory", None) for parent in list(Path(at).parents)[:-1]}
    for at, value in sorted(sent.items()):
        above = [str(parent) for parent in list(Path(at).parents)[:-1]]
        if at not in found and all(found.get(one, ("nothing",))[0] == "directory" for one in above):
            found[at] = value
    return found


def check(job: list[Deed], first: list[Deed], second: list[Deed], declared: list[str]) -> None:
    """Send a job, let two attempts and another run act, and compare all that each of them sees."""
    with tempfile.TemporaryDirectory() as root:
        _check(Path(root), job, first, second, declared)


def _check(
    root: Path, job: list[Deed], first: list[Deed], second: list[Deed], declared: list[str]
) -> None:
    make(root / "job", job)
    as_sent(root / "job", root / "plain")
    sent = seen(root / "plain")
    if any(
        sent.get(str(parent), ("directory",))[0] == "file"
        for one in declared
        for parent in Path(one).parents
    ):
        return

    node = Node(root / "node", root / "job")
    parents = {
        str(parent): ("directory", None)
        for one in declared
        for parent in list(Path(one).parents)[:-1]
    }

    attempt = node.begin(declared)
    assert seen(attempt.directory) == {**parents, **sent}

    for parent in parents:
        (root / "plain" / parent).mkdir(parents=True, exist_ok=True)

    for deed in first:
        do(attempt.directory, deed)
        do(root / "plain", deed)

    left = seen(attempt.directory)
    assert left == seen(root / "plain")

    parts, left_out = attempt.sent_home()
    brought_home(parts, root / "home")
    at_home = seen(root / "home", below=declared)
    expected = seen(attempt.directory, below=declared)
    assert at_home == {at: value for at, value in expected.items() if at not in left_out}
    news = {at for at, value in left.items() if value[0] != "directory" and sent.get(at) != value}
    assert news - set(expected) <= set(attempt.undeclared())

    retried = node.begin(declared, restored=parts)
    found = around(sent, at_home)
    files = {at for at, value in found.items() if value[0] != "directory"}
    # A file that came home may be where another output needs a parent directory.
    still = {
        at: value
        for at, value in parents.items()
        if files.isdisjoint([at, *map(str, Path(at).parents)])
    }

    assert seen(retried.directory) == {**still, **found}
    for deed in second:
        do(retried.directory, deed)

    assert seen(attempt.directory) == left
    assert seen(node.begin(declared).directory) == {**parents, **sent}
    # The next attempt may reuse the directory of an attempt that ended well.
    retried.place.hand_on()
    assert seen(node.begin(declared).directory) == {**parents, **sent}
