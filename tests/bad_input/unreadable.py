"""What stands where a file should be: nothing, a pipe, 100 MB; YAML that is broken, too much, or more than values."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bad_input.case import cluster, job, lab, not_text

# Seven levels of ten: ten million values, in 300 bytes.
_LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)
_NO_FILE = "lab.yaml: is not a cluster file: it is a directory, or no regular file"
_TOO_DEEP = "is nested deeper than 32 levels"


def _nothing(path: Path) -> None:
    """Leave the place empty."""


def _hundred_megabytes(path: Path) -> None:
    """Make a file that claims 100 MB and takes no room: it must be refused before it is read."""
    with path.open("wb") as stream:
        stream.truncate(100_000_000)


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


UNREADABLE = (
    not_text("no cluster file", "cluster", _nothing, "lab.yaml: cannot be read: No such file or directory"),
    not_text("no job file", "job", _nothing, "train/job.yaml: cannot be read: No such file or directory"),
    not_text(
        "a link to itself", "cluster", _link_to_itself, "lab.yaml: cannot be read: Too many levels of symbolic links"
    ),
    not_text("a directory", "cluster", Path.mkdir, _NO_FILE),
    not_text("a pipe that nobody writes to", "cluster", os.mkfifo, _NO_FILE),
    not_text(
        "100 MB",
        "cluster",
        _hundred_megabytes,
        "lab.yaml: is larger than 1 MiB, which is the most that a cluster file has",
    ),
    cluster("an empty file", "", "lab.yaml: is empty"),
    cluster("a list", "- name: lab\n", 'lab.yaml:1: must be a mapping of keys to values, got [{"name": "lab"}]'),
    cluster("a NUL byte", b"name: lab\x00\n", "lab.yaml:1: is not a text file: it contains the character U+0000"),
    cluster("Latin-1", "name: lab\nimage: café\n".encode("latin-1"), "lab.yaml:2: is not UTF-8 text"),
    lab("a tab for indentation", "head:\n\tcpus: 2\n", "lab.yaml:4: is indented with a tab: use spaces"),
    lab(
        "two documents",
        "---\nname: other\n",
        "lab.yaml:3: is not valid YAML: expected a single document in the stream that begins on line 1, "
        "but found another document",
    ),
    lab(
        "a bracket that is never closed",
        "head: {cpus: 2\n",
        "lab.yaml:4: is not valid YAML: while parsing a flow mapping that begins on line 3, expected ',' "
        "or '}', but got '<stream end>'",
    ),
    lab("an alias to nothing", "head: *big\n", "lab.yaml:3: is not valid YAML: found undefined alias 'big'"),
    lab("an alias to itself", "env: &env {A: *env}\n", f"lab.yaml:3: {_TOO_DEEP}"),
    cluster("a billion laughs", _LAUGHS, "lab.yaml:1: holds more than 200,000 values once aliases are followed"),
    cluster("brackets a hundred deep", "head: " + "[" * 100 + "]" * 100 + "\n", f"lab.yaml:1: {_TOO_DEEP}"),
    job(
        "a tag that runs Python",
        "command: !!python/object/apply:os.system [id]\n",
        "train/job.yaml:1: command: has the tag !!python/object/apply:os.system: files hold plain values, nothing "
        "that runs or converts",
    ),
    lab("a key twice", "head: {cpus: 1}\nhead: {cpus: 2}\n", "lab.yaml:4: head: is given twice, first on line 3"),
    lab("a key that is true", "env: {true: x}\n", "lab.yaml:3: env: has a key that is not text: write it in quotes"),
    lab("a list for a key", "env: {? [a] : x}\n", "lab.yaml:3: env: has a key that is not text: write it in quotes"),
    lab("a merge key", "head: {<<: {cpus: 2}}\n", "lab.yaml:3: head.<<: is not a known key; known: cpus, memory, gpus"),
)
