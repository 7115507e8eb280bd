"""Bad files: none, a pipe, 100 MB; YAML that is broken, too large, or more than values."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bad_input.case import cluster, job, lab

# Seven levels of ten: ten million values, in 300 bytes.
_LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


def _hundred_megabytes(path: Path) -> None:
    """Make a file that claims 100 MB and takes no room: it must be refused before it is read."""
    with path.open("wb") as stream:
        stream.truncate(100_000_000)


UNREADABLE = (
    cluster(
        "no cluster file", lambda path: None, "lab.yaml: cannot be read: No such file or directory"
    ),
    job(
        "no job file",
        lambda path: None,
        "train/job.yaml: cannot be read: No such file or directory",
    ),
    cluster(
        "a link to itself",
        lambda path: path.symlink_to(path.name),
        "lab.yaml: cannot be read: Too many levels of symbolic links",
    ),
    cluster(
        "a pipe that nobody writes to",
        os.mkfifo,
        "lab.yaml: is a directory or a special file, not a cluster file",
    ),
    cluster(
        "100 MB",
        _hundred_megabytes,
        "lab.yaml: is larger than 1 MiB, the limit for a cluster file",
    ),
    cluster("an empty file", "", "lab.yaml: is empty"),
    cluster(
        "a list",
        "- name: lab\n",
        'lab.yaml:1: must be a mapping of keys to values, got [{"name": "lab"}]',
    ),
    cluster(
        "a NUL byte",
        b"name: lab\x00\n",
        "lab.yaml:1: is not a text file: it contains the character U+0000",
    ),
    cluster(
        "Latin-1", "name: lab\nimage: café\n".encode("latin-1"), "lab.yaml:2: is not UTF-8 text"
    ),
    lab(
        "a tab for indentation",
        "head:\n\tcpus: 2\n",
        "lab.yaml:4: is indented with a tab: use spaces",
    ),
    lab(
        "two documents",
        "---\nname: other\n",
        "lab.yaml:3: is not valid YAML: expected a single document in the stream that begins on "
        "line 1, "
        "but found another document",
    ),
    lab(
        "a bracket that is never closed",
        "head: {cpus: 2\n",
        "lab.yaml:4: is not valid YAML: while parsing a flow mapping that begins on line 3, "
        "expected ',' "
        "or '}', but got '<stream end>'",
    ),
    job(
        "a placeholder within a word without quotes",
        "command: [python, train.py, --seed={seed}]\n",
        "train/job.yaml:1: is not valid YAML: while parsing a flow sequence that begins on line "
        "1, expected ',' or ']', but got '{'; a word with a {placeholder} needs quotes, such as "
        "'--seed={seed}'",
    ),
    lab(
        "an alias to nothing",
        "head: *big\n",
        "lab.yaml:3: is not valid YAML: found undefined alias 'big'",
    ),
    cluster(
        "a billion laughs",
        _LAUGHS,
        "lab.yaml:1: holds more than 200,000 values once aliases are followed",
    ),
    cluster(
        "deep brackets",
        "head: " + "[" * 100 + "]" * 100 + "\n",
        "lab.yaml:1: is nested deeper than 32 levels",
    ),
    job(
        "a tag that runs Python",
        "command: !!python/object/apply:os.system [id]\n",
        "train/job.yaml:1: command: has the tag !!python/object/apply:os.system: files hold "
        "plain values, nothing "
        "that runs or converts",
    ),
    lab(
        "a key twice",
        "head: {cpus: 1}\nhead: {cpus: 2}\n",
        "lab.yaml:4: head: is given twice, first on line 3",
    ),
    lab(
        "a key that is true",
        "env: {true: x}\n",
        "lab.yaml:3: env: has a key that is not text: write it in quotes",
    ),
    lab(
        "a merge key",
        "head: {<<: {cpus: 2}}\n",
        "lab.yaml:3: head.<<: is not a known key; known: cpus, memory, gpus, image, resources, "
        "labels, ray_start",
    ),
)
