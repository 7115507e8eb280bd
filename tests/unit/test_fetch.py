"""Outputs come home archive by archive: in order, each once, whole or not at all.

The cluster is a dict of files.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from trainyard_runner.wire import archive

from tests.run_events import an_event
from trainyard.dispatch import fetch
from trainyard.errors import OutsideError
from trainyard.results import store
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import FileMissingError, RayApi


class Cluster:
    """A run's files on its head, and its state by its events."""

    def __init__(self, directory: Path) -> None:
        self.run = RunDirectory(directory / "job-1")
        self.run.path.mkdir()
        self.task = directory / "task"
        self.task.mkdir()
        self.state = RunState(run="job-1", cluster="lab", job="job", tasks=["a"])
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    @contextmanager
    def file(self, node_id: str, filename: str) -> Iterator[Iterator[bytes]]:
        self.asked.append(filename)
        if filename not in self.files:
            raise FileMissingError(filename)
        yield iter([self.files[filename]])

    def sends(
        self,
        number: int,
        *,
        whole: bool = False,
        attempt: int = 1,
        removed: tuple[str, ...] = (),
        unwritable: str = "",
        **more: Any,
    ) -> None:
        """Let the task send all files it has by now, and one `unwritable` here."""
        content = b"".join(archive.parts(archive.scan(str(self.task))[0].values(), []))
        if unwritable:
            content += tarfile.TarInfo(unwritable).tobuf(tarfile.GNU_FORMAT)
        content += bytes(1024)
        file = f"outputs/a.{number}.tar"
        self.files[f"trainyard/job-1/{file}"] = content

        said = {
            "task": "a",
            "attempt": attempt,
            "number": number,
            "file": file,
            "bytes": len(content),
            "whole": whole,
        }

        said |= {
            "sha256": hashlib.sha256(content).hexdigest(),
            "removed": list(removed),
            "each_attempt": False,
            **more,
        }

        self.state.apply(an_event("outputs", time=1.0, **said))

    def comes_home(self) -> dict[str, str]:
        """Fetch, and return the files at home; raise the first error."""
        fetcher = fetch.Fetcher(cast(RayApi, self), self.run, note=lambda _: None)
        for task in self.state.tasks.values():
            fetcher.fetch("node", task)
        for error in fetcher.wait():
            raise error
        place = self.run.outputs("a")
        return {
            str(path.relative_to(place)): path.read_text()
            for path in place.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def cluster(tmp_path: Path, at_once: None) -> Cluster:
    return Cluster(tmp_path)


def test_archives_are_applied_in_order_and_each_once(cluster: Cluster) -> None:
    (cluster.task / "metrics.csv").write_text("1")
    (cluster.task / "gone").write_text("g")
    cluster.sends(1, whole=True)
    assert cluster.comes_home() == {"metrics.csv": "1", "gone": "g"}
    (cluster.task / "metrics.csv").write_text("12")
    (cluster.task / "gone").unlink()
    cluster.sends(2, removed=("gone",))
    assert cluster.comes_home() == {"metrics.csv": "12"}
    assert cluster.comes_home() == {"metrics.csv": "12"}
    assert len(cluster.asked) == 2
    assert [
        path.name for path in cluster.run.outputs("a").parent.iterdir() if path.name.startswith(".")
    ] == [".a.fetched"]


def test_a_damaged_archive_leaves_fetched_files_unchanged(cluster: Cluster) -> None:
    (cluster.task / "metrics.csv").write_text("1")
    cluster.sends(1, whole=True)
    cluster.comes_home()
    (cluster.task / "metrics.csv").write_text("2")
    cluster.sends(2)
    cluster.files["trainyard/job-1/outputs/a.2.tar"] = b"x" * 1024
    with pytest.raises(OutsideError, match="damaged"):
        cluster.comes_home()
    assert store.fetched(cluster.run.outputs("a")) == 1
    assert (cluster.run.outputs("a") / "metrics.csv").read_text() == "1"


def test_a_whole_archive_replaces_local_files_and_lost_archives(cluster: Cluster) -> None:
    (cluster.task / "old").write_text("o")
    cluster.sends(1, whole=True)
    cluster.comes_home()
    cluster.sends(2)
    (cluster.task / "old").rename(cluster.task / "new")
    cluster.sends(3, whole=True)
    del cluster.files["trainyard/job-1/outputs/a.2.tar"]
    assert cluster.comes_home() == {"new": "o"}


@pytest.mark.parametrize("is_whole", [False, True])
def test_outputs_that_cannot_be_written_are_an_error_at_each_fetch(
    cluster: Cluster, is_whole: bool
) -> None:
    cluster.sends(1, whole=True)
    assert cluster.comes_home() == {}
    cluster.sends(2, whole=is_whole, unwritable="n" * 300)
    (cluster.task / "later").write_text("l")
    cluster.sends(3)
    for _ in range(2):
        with pytest.raises(OutsideError, match="outputs of a cannot be written here: nnn"):
            cluster.comes_home()
        assert store.fetched(cluster.run.outputs("a")) == 1
        assert (cluster.run.outputs("a") / "later").read_text() == "l"


@pytest.mark.parametrize("replacing", [{"whole": True}, {"removed": ("n" * 300,)}])
def test_an_unwritten_output_that_is_gone_is_no_error(
    cluster: Cluster, replacing: dict[str, Any]
) -> None:
    cluster.sends(1, whole=True, unwritable="n" * 300)
    (cluster.task / "later").write_text("l")
    cluster.sends(2, **replacing)
    assert cluster.comes_home() == {"later": "l"}
    assert store.fetched(cluster.run.outputs("a")) == 2
