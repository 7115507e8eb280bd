"""Checkpoints on storage that outlives the head: where they are, and how later runs find them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from trainyard_runner.head import durable
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.records import Records
from trainyard_runner.wire import names
from trainyard_runner.wire.stream import EventStream

from trainyard.dispatch.follow import _end_reason


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Give the directory of a run on a head."""
    directory = tmp_path / "head" / "rl-1"
    directory.mkdir(parents=True)
    return directory


def records_of(run: Path, storage: Path | None) -> Iterator[Records]:
    stream = EventStream(run)
    yield Records(
        run,
        stream,
        node="head",
        node_name=str,
        each_attempt=False,
        job_log=JobLog("rl-1"),
        storage=str(storage) if storage else None,
    )
    stream.close()


def keep(records: Records, task: str, content: bytes) -> None:
    records.inherit_checkpoint(task, iter([content]))


def test_without_storage_checkpoints_are_on_the_heads_disk(run: Path) -> None:
    assert durable.place(run, None) == durable.Kept()
    (records,) = records_of(run, None)
    keep(records, "a", b"ten")
    assert not (run / names.CHECKPOINTS).is_symlink()
    assert (run / names.checkpoint_archive("a")).read_bytes()


def test_a_new_head_s_run_begins_with_the_earlier_head_s_storage(run: Path, tmp_path: Path) -> None:
    storage = tmp_path / "outputs" / ".trainyard" / "lab"
    assert durable.place(run, str(storage)) == durable.Kept(str(storage / "rl-1"))
    (records,) = records_of(run, storage)
    keep(records, "a", b"ten")
    kept = (run / names.checkpoint_archive("a")).read_bytes()

    later = tmp_path / "new head" / "rl-2"
    later.mkdir(parents=True)
    durable.place(later, str(storage))
    (records,) = records_of(later, storage)
    keep(records, "a", b"what the operator sent is older")
    records.adopt("rl-1", "a", "a")
    records.adopt("rl-1", "never had one", "b")
    assert b"".join(records.checkpoint_parts("a")) == kept
    assert list(records.checkpoint_parts("b")) == []

    # A later checkpoint of one run does not change the other's.
    keep(records, "a", b"twenty")
    assert (storage / "rl-1" / "a.tar").read_bytes() == kept


def test_storage_without_hard_links_takes_a_copy(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOTSUP, "not supported")

    (run / "a.tar").write_bytes(b"ten")
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    durable.share(run / "a.tar", tmp_path / "rl-2" / "a.tar")
    assert (tmp_path / "rl-2" / "a.tar").read_bytes() == b"ten"
    assert len(list((tmp_path / "rl-2").iterdir())) == 1


def test_storage_that_cannot_be_written_to_costs_a_note(run: Path, tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    kept = durable.place(run, str(tmp_path / "outputs" / "lab"))
    assert kept.at is None
    assert kept.problem.startswith("checkpoints are on the head's disk, not on the storage: ")
    (records,) = records_of(run, None)
    keep(records, "a", b"ten")
    assert (run / names.checkpoint_archive("a")).is_file()


def test_a_lost_run_says_where_its_checkpoints_are() -> None:
    assert _end_reason(None, "/outputs/.trainyard/lab/rl-1") == (
        "the cluster's head or the whole cluster was replaced: the run is lost, "
        "and its checkpoints are on the cluster's storage (/outputs/.trainyard/lab/rl-1)"
    )
