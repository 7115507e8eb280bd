"""Git's facts about a job, as a run records them: the ignored files, and the revision."""

from __future__ import annotations

import datetime
import os
import subprocess
from pathlib import Path

import pytest

from tests.job_directories import sent, write
from trainyard.dispatch.package import pack
from trainyard.dispatch.plan import prepare, record_of
from trainyard.endpoint import Endpoint
from trainyard.seams.git import changed as changed_files
from trainyard.seams.git import revision
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.spec.job import JobSpec

pytestmark = pytest.mark.core

CLUSTER = LoadedCluster(ClusterSpec(name="lab", backend="local"), Path("clusters/lab.yaml"))
NOW = datetime.datetime(2026, 11, 21, 9, 0, tzinfo=datetime.timezone.utc)

TRICKY = {
    ".gitignore": (
        "# comment\n*.o\n!keep.o\n/top\ndoc/*.txt\n**/gen/**\n\\#hash\ntrail "
        "\na/**/z\ndir/\n!dir/in\n"
    ),
    "x.o": "",
    "keep.o": "",
    "top": "",
    "sub/top": "",
    "doc/a.txt": "",
    "doc/s/a.txt": "",
    "p/gen/q/r": "",
    "#hash": "",
    "trail": "",
    "a/z": "",
    "a/b/c/z": "",
    "dir/in": "",
    "sub/dir/in": "",
    "sub/.gitignore": "*\n!.gitignore\n!dir2/\n!*.py\n",
    "sub/a.py": "",
    "sub/b.c": "",
    "sub/dir2/x": "",
    "sub/dir2/y.py": "",
    "ümlaut.o": "",
}


def test_ignore_files_mean_what_git_says_they_mean(tmp_path: Path) -> None:
    root = write(tmp_path, TRICKY)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, timeout=20)
    listed = subprocess.run(
        [
            "git",
            "-c",
            "core.quotepath=off",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=root,
        check=True,
        timeout=20,
        capture_output=True,
        text=True,
    )

    assert sent(root) == sorted(filter(None, listed.stdout.split("\0")))


def test_the_record_names_job_cluster_versions_and_tasks_but_no_secret(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "a.pyc").write_text("x")
    job = JobSpec.model_validate(
        {"name": "job", "command": ["echo", "{seed}"], "matrix": {"seed": (0, 1)}}
    )
    prepared = prepare(CLUSTER, job, tmp_path)

    command = [
        "invoke",
        "train.dispatch",
        "job",
        "--set",
        "env.API_TOKEN=s3cret",
        "--set",
        "env.LR=1",
    ]

    record = record_of(
        prepared,
        pack(prepared.files),
        run="job-1",
        endpoint=Endpoint("lab", "http://127.0.0.1:1", "s3cret"),
        ray="2.60.0",
        now=NOW,
        command=command,
        skip_smoke=False,
    )

    assert "s3cret" not in str(record)
    assert record["command"][3:] == ["--set", "env.API_TOKEN=(hidden)", "--set", "env.LR=1"]
    assert {
        key: record[key] for key in ("run", "job", "cluster", "backend", "started", "tasks")
    } == {
        "run": "job-1",
        "job": "job",
        "cluster": "lab",
        "backend": "local",
        "started": "2026-11-21T09:00:00.000+00:00",
        "tasks": ["seed=0", "seed=1"],
    }

    assert (record["versions"]["ray"], record["sent"]["files"], record["sent"]["left_out"]) == (
        "2.60.0",
        1,
        ["a.pyc"],
    )


def test_changed_files_have_their_names_also_where_those_are_not_utf_8(tmp_path: Path) -> None:
    names = (" first", os.fsdecode(b"caf\xe9.txt"), "zwei\nzeilen")
    for name in names:
        (tmp_path / name).write_text("1")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=20)
    for name in names:
        (tmp_path / name).write_text("2")
    assert sorted(changed_files(tmp_path)) == sorted(names)


def test_the_git_revision_knows_whether_something_was_changed(tmp_path: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    (tmp_path / "a").write_text("1")
    for command in (["init", "-q"], ["add", "a"], [*identity, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=20)
    clean = revision(tmp_path)
    assert clean is not None and (len(clean["revision"]), clean["dirty"]) == (40, False)
    (tmp_path / "a").write_text("2")
    changed = revision(tmp_path)
    assert changed == {"revision": clean["revision"], "dirty": True}
