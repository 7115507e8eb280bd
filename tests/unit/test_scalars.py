"""TensorBoard event files, as the real tensorboardX writes them, read back."""

from __future__ import annotations

import os
import struct
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.record_writer import RecordWriter

from trainyard.results.scalars import Curve, read_directory, read_file, read_table


def written(
    directory: Path, values: dict[int, float], *, tag: str = "return", second: int | None = None
) -> Path:
    """Write scalars by step with tensorboardX; return the event file."""
    before = set(directory.glob("*"))
    with SummaryWriter(str(directory)) as writer:
        for step, value in values.items():
            writer.add_scalar(tag, value, step)
    (path,) = set(directory.glob("*")) - before
    return path if second is None else path.rename(directory / f"events.out.tfevents.{second}.host")


def curves(
    directory: Path, *, tags: int = 10, by_attempt: bool = False
) -> dict[str, dict[str, list[Any]]]:
    """Read a directory into plain lists of (step, value)."""
    found = read_directory(directory, points=100, tags=tags, by_attempt=by_attempt)
    return {
        place: {tag: plain(curve) for tag, curve in by_tag.items()}
        for place, by_tag in found.items()
    }


def plain(curve: Curve) -> list[tuple[float, float]]:
    return [(step, value) for step, value, _ in curve.points()]


def test_a_torn_last_record_ends_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, {0: 1.0, 1: 2.0, 2: 3.0})
    whole = path.read_bytes()
    lengths = set()
    for cut in range(1, 60):
        path.write_bytes(whole[:-cut])
        lengths.add(len(list(read_file(path))))
    assert lengths == {1, 2}


@pytest.mark.parametrize(
    ("later", "curve"),
    [
        ({20: 30.0, 30: 40.0}, [(0, 1.0), (10, 2.0), (20, 30.0), (30, 40.0)]),
        ({0: 5.0, 10: 6.0}, [(0, 5.0), (10, 6.0)]),
    ],
)
def test_a_later_file_continues_an_earlier_one_and_replaces_repeats(
    tmp_path: Path, later: dict[int, float], curve: list[tuple[float, float]]
) -> None:
    written(tmp_path, {0: 1.0, 10: 2.0, 20: 3.0}, second=900)
    written(tmp_path, later, second=1000)
    assert curves(tmp_path) == {"": {"return": curve}}


def test_subdirectories_are_curves_of_their_own(tmp_path: Path) -> None:
    written(tmp_path / "PPO_1", {0: 1.0})
    written(tmp_path / "PPO_2", {0: 2.0})
    assert curves(tmp_path) == {"PPO_1": {"return": [(0, 1.0)]}, "PPO_2": {"return": [(0, 2.0)]}}


def test_attempts_with_directories_of_their_own_continue_each_other(tmp_path: Path) -> None:
    written(tmp_path / "attempt-9" / "PPO_1", {0: 1.0, 10: 2.0, 20: 3.0}, second=900)
    written(tmp_path / "attempt-10" / "PPO_1", {10: 30.0, 30: 40.0}, second=100)
    assert curves(tmp_path, by_attempt=True) == {
        "PPO_1": {"return": [(0, 1.0), (10, 30.0), (30, 40.0)]}
    }


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.5)), 0.5),
        (TensorProto(dtype=1, float_val=[1.5]), 1.5),
        (TensorProto(dtype=2, double_val=[2.5]), 2.5),
    ],
)
def test_a_scalar_may_be_a_tensor_as_tensorflow_2_writes_it(
    tmp_path: Path, tensor: TensorProto, value: float
) -> None:
    path = record(tmp_path, Summary.Value(tag="loss", tensor=tensor, metadata=plugin("scalars")))
    assert [(tag, step, number) for tag, step, number, _ in read_file(path)] == [
        ("loss", 4.0, value)
    ]


@pytest.mark.parametrize(
    "entry",
    [
        Summary.Value(tag="t", tensor=TensorProto(dtype=7, string_val=[b"hello"])),
        Summary.Value(tag="t", tensor=TensorProto(dtype=1, float_val=[1.0, 2.0])),
        Summary.Value(tag="t", tensor=TensorProto(dtype=1, tensor_content=b"abc")),
        Summary.Value(tag="t", image=Summary.Image(height=1, width=1)),
        Summary.Value(
            tag="t",
            tensor=TensorProto(dtype=1, float_val=[1.0]),
            metadata=SummaryMetadata(
                plugin_data=SummaryMetadata.PluginData(plugin_name="pr_curves")
            ),
        ),
    ],
)
def test_a_summary_value_that_is_not_one_number_is_skipped(
    tmp_path: Path, entry: Summary.Value
) -> None:
    assert list(read_file(record(tmp_path, entry))) == []


def test_a_large_record_is_passed_over_and_what_follows_is_read(tmp_path: Path) -> None:
    image = Summary.Value(tag="frame", image=Summary.Image(encoded_image_string=b"x" * 1_000_000))
    path = record(tmp_path, image, Summary.Value(tag="loss", simple_value=2.0))
    assert list(read_file(path)) == [("loss", 4.0, 2.0, 1.0)]


def test_a_long_curve_keeps_a_bounded_number_of_points_and_its_last() -> None:
    curve = Curve(100)
    for step in range(100_001):
        curve.add(step, step * 2.0)
    kept = plain(curve)
    assert 50 <= len(kept) <= 101
    assert kept[0] == (0, 0.0)
    assert kept[-1] == (100_000, 200_000.0)
    assert len(curve.steps) < 100


def test_a_curve_that_begins_again_keeps_its_first_point() -> None:
    curve = Curve(4)
    for step in range(10, 17):
        curve.add(step, 1.0)
    curve.add(5, 2.0, 30.0)
    assert plain(curve) == [(5, 2.0)]
    assert list(curve.times) == [30.0]
    curve.add(6, 3.0)
    assert plain(curve) == [(5, 2.0), (6, 3.0)]


def plugin(name: str) -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name))


def record(directory: Path, *entries: Summary.Value) -> Path:
    """Write entries as events of step 4."""
    path = directory / "events.out.tfevents.1.host"
    writer = RecordWriter(str(path))
    for entry in entries:
        writer.write(
            Event(step=4, wall_time=1.0, summary=Summary(value=[entry])).SerializeToString()
        )
    writer.close()
    return path


def framed(event: bytes) -> bytes:
    """Return a record of an event file; its checksums are zero, since they are never read."""
    return len(event).to_bytes(8, "little") + bytes(4) + event + bytes(4)


SCALAR = b"\x2a\x0a\x0a\x08\x0a\x01x\x15\x00\x00\x80\x3f"  # the summary of "x", 1.0


@pytest.mark.parametrize(
    "damage",
    [
        b"\x10" + b"\xff" * 11 + b"\x01",  # a step that is a varint of 12 bytes
        b"\x12\xc8\x01" + b"\xff" * 200,  # a step of 200 bytes
        b"\x12\x09" + b"\xff" * 9,  # a step of 72 bits
        b"\xff" * 40,
        b"\x09\x00",  # a time of one byte
    ],
)
def test_a_damaged_record_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "events.out.tfevents.1.h"
    path.write_bytes(framed(damage + SCALAR) + framed(b"\x10\x05" + SCALAR))
    assert list(read_file(path)) == [("x", 5.0, 1.0, 0.0)]


def test_a_file_with_random_damaged_bytes_is_read_as_finite_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, {step: float(step) for step in range(20)})
    whole = path.read_bytes()
    random = Random(23)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 40)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        path.write_bytes(damaged)
        for _, step, value, _ in read_file(path):
            assert isfinite(step) and isfinite(value)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("progress.csv", "step,loss\n1,0.5\n2,0.25\n", {"loss": [(1, 0.5), (2, 0.25)]}),
        # An attempt that began again from a checkpoint.
        (
            "a.csv",
            "step,loss\n1,3\n2,2\n3,1\n2,1.5\n3,0.5\n",
            {"loss": [(1, 3), (2, 1.5), (3, 0.5)]},
        ),
        # Lightning's CSVLogger leaves out what was not measured at a step.
        (
            "metrics.csv",
            "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,19,,0.75\n",
            {"epoch": [(9, 0), (19, 0)], "train_loss": [(9, 0.5)], "val_loss": [(19, 0.75)]},
        ),
        ("p.csv", "time/total_timesteps,train/loss\r\n512,1.5\r\n", {"train/loss": [(512, 1.5)]}),
        (
            "m.jsonl",
            '{"step": 1, "loss": 2.5, "name": "a"}\n{"step": 2, "loss"',
            {"loss": [(1, 2.5)]},
        ),
        ("m.jsonl", '{"iteration": 1, "done": true, "loss": NaN, "big": 1' + "0" * 400 + "}\n", {}),
        ("s.csv", "frame,reward\n3,1.5\n", {"reward": [(3, 1.5)]}),
        ("nan.csv", "step,loss\n1,nan\ntwo,3\n3,inf\n4,2\n", {"loss": [(4, 2)]}),
        # Neither curves nor an error: data of another kind, and files that are broken.
        ("data.csv", "x,y\n1,2\n", {}),
        ("empty.csv", "", {}),
        ("rows.jsonl", "[1, 2]\n3\n", {}),
        ("deep.jsonl", "[" * 100_000 + "\n", {}),
        ("long.csv", "step,loss\n1," + "9" * 200_000 + "\n", {}),
        ("wide.csv", "step,loss\n1,2,3,4\n2\n3,1\n", {"loss": [(1, 2), (3, 1)]}),
        ("bytes.csv", "\ufffe\x00step,loss\n1,2\n", {}),
    ],
)
def test_tables_with_a_step_are_curves(
    name: str, text: str, found: dict[str, list[tuple[float, float]]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text, newline="")
    read = read_directory(tmp_path, points=100, tags=10, step="frame" if name == "s.csv" else None)
    assert {tag: plain(curve) for tag, curve in read.get("", {}).items()} == found


def test_tables_of_a_directory_with_event_files_are_not_read(tmp_path: Path) -> None:
    written(tmp_path / "trial", {0: 1.0})
    (tmp_path / "trial" / "progress.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "mine.csv").write_text("step,loss\n1,2\n")
    assert curves(tmp_path) == {"trial": {"return": [(0, 1.0)]}, "": {"loss": [(1, 2)]}}


def test_a_table_of_many_megabytes_is_no_curve(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_text("step,loss\n1,2\n")
    assert list(read_table(path))
    os.truncate(path, 65 * 1024 * 1024)
    assert list(read_table(path)) == []


def test_rows_have_their_own_times_where_they_say_them(tmp_path: Path) -> None:
    path = tmp_path / "result.csv"
    path.write_text("training_iteration,timestamp,loss\n1,1700000000,2\n")
    assert list(read_table(path)) == [("loss", 1, 2, 1700000000)]
