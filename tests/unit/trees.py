"""Trees that no path reaches."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainyard_runner import tree


def make_deep(root: Path, *, levels: int = 1500, name: str = "level") -> str:
    """Make directories in one another with a file in the last one; return its path below the root."""
    root.mkdir(exist_ok=True)
    inside = "/".join([name] * levels)
    with tree.Cursor(str(root)) as cursor:
        last = cursor.to(inside, make=True)
        with os.fdopen(os.open("leaf", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=last), "w") as leaf:
            leaf.write("leaf")
    return f"{inside}/leaf"


def read_deep(root: Path, inside: str) -> str:
    """Return the content of a file that make_deep made."""
    with tree.Cursor(str(root)) as cursor:
        directory = cursor.to(os.path.dirname(inside))
        with os.fdopen(os.open(os.path.basename(inside), os.O_RDONLY, dir_fd=directory)) as leaf:
            return leaf.read()


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Allow this process 64 open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
