"""What stands where a file should be: nothing, a directory, a pipe, 100 MB."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bad_input.case import not_text


def _nothing(path: Path) -> None:
    """Leave the place empty."""


def _hundred_megabytes(path: Path) -> None:
    """Make a file that claims 100 MB and takes no room: it must be refused before it is read."""
    with path.open("wb") as stream:
        stream.truncate(100_000_000)


def _one_byte_too_many(path: Path) -> None:
    path.write_bytes(b"#" * (1024 * 1024 + 1))


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


NOT_TEXT = (
    not_text("no cluster file", "cluster", _nothing, "lab.yaml: cannot be read: No such file or directory"),
    not_text("no job file", "job", _nothing, "train/job.yaml: cannot be read: No such file or directory"),
    not_text(
        "a directory for a cluster file",
        "cluster",
        Path.mkdir,
        "lab.yaml: is not a cluster file: it is a directory, or no regular file",
    ),
    not_text(
        "a pipe that nobody writes to",
        "cluster",
        os.mkfifo,
        "lab.yaml: is not a cluster file: it is a directory, or no regular file",
    ),
    not_text(
        "a cluster file of 100 MB",
        "cluster",
        _hundred_megabytes,
        "lab.yaml: is larger than 1 MiB, which is the most that a cluster file has",
    ),
    not_text(
        "a link to itself", "cluster", _link_to_itself, "lab.yaml: cannot be read: Too many levels of symbolic links"
    ),
)
