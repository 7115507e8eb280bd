"""cluster.scale: another size than the file says, and what it says about that."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.backends.shared.record import write_made_from
from trainyard.errors import RequestError
from trainyard.operations import clusters, scale
from trainyard.operations.cluster import Cluster

FILE = """
name: lab
backend: local
workers:
  - {name: gpu, count: 2}
  - {name: burst, min: 0, max: 4}
"""


def cluster(tmp_path: Path, text: str = FILE, *, overrides: tuple[str, ...] = ()) -> Cluster:
    (tmp_path / "clusters").mkdir(exist_ok=True)
    (tmp_path / "clusters" / "lab.yaml").write_text(text)
    return clusters.find("lab", {"HOME": str(tmp_path)}, directory=tmp_path, overrides=overrides)


def test_a_group_gets_its_requested_size_and_the_next_command_keeps_it(tmp_path: Path) -> None:
    sized = scale.scaled(cluster(tmp_path, overrides=("head.cpus=2",)), ["gpu=0", "burst=1"])
    assert [(group.name, group.least, group.most) for group in sized.spec.workers] == [
        ("gpu", 0, 0),
        ("burst", 1, 4),
    ]
    assert sized.site.overrides == ("head.cpus=2", "workers.gpu.count=0", "workers.burst.min=1")
    assert scale.scaled(cluster(tmp_path), ["gpu=2"]).site.overrides == ()


def test_sizes_that_differ_from_the_file_are_reported(tmp_path: Path) -> None:
    file = cluster(tmp_path)
    wanted = scale.scaled(file, ["gpu=3", "burst=0"])
    assert scale.size_differences(file.spec, wanted.spec) == ["gpu: 2 in the file, 3 now"]


@pytest.mark.parametrize(
    ("before", "typed", "sizes", "now", "differences"),
    [
        (
            ["workers.gpu.count=3"],
            [],
            ["burst=1"],
            [(3, 3), (1, 4)],
            ["gpu: 2 in the file, 3 now", "burst: 0 in the file, 1 now"],
        ),
        (["workers.gpu.count=3", "head.cpus=2"], [], ["gpu=2"], [(2, 2), (0, 4)], []),
        (
            ["workers.burst.max=8", "workers.burst.min=1"],
            [],
            ["burst=5"],
            [(2, 2), (5, 8)],
            ["burst: 0 in the file, 5 now", "burst: at most 4 in the file, 8 now"],
        ),
        (["workers.0.count=3"], [], ["burst=0"], [(3, 3), (0, 4)], ["gpu: 2 in the file, 3 now"]),
        (
            ["workers.gpu.count=3"],
            ["workers.gpu.count=4"],
            ["burst=0"],
            [(4, 4), (0, 4)],
            ["gpu: 2 in the file, 4 now"],
        ),
        # The file's groups have changed since.
        (["workers.cpu.count=3", "workers.gpu.min=3"], [], ["burst=0"], [(2, 2), (0, 4)], []),
    ],
)
def test_a_second_size_keeps_the_sizes_of_other_groups(
    tmp_path: Path,
    before: list[str],
    typed: list[str],
    sizes: list[str],
    now: list[tuple[int, int]],
    differences: list[str],
) -> None:
    file = cluster(tmp_path)
    file.site.state.mkdir(parents=True)
    write_made_from(file.site.state, tmp_path / "clusters" / "lab.yaml", before)
    sized = scale.scaled(cluster(tmp_path, overrides=tuple(typed)), sizes)
    assert [(group.least, group.most) for group in sized.spec.workers] == now
    assert scale.size_differences(file.spec, sized.spec) == differences


@pytest.mark.parametrize(
    ("sizes", "problems"),
    [
        (
            ["gpu", "gpu=-1"],
            ["gpu: must be GROUP=N, such as gpu=3", "gpu=-1: must be GROUP=N, such as gpu=3"],
        ),
        (
            ["gpus=3", "head=2"],
            [
                (
                    "--set workers.gpus.count: workers has no entry 'gpus' (there are: gpu, burst); "
                    "did you mean 'gpu'?"
                ),
                "--set workers.head.count: workers has no entry 'head' (there are: gpu, burst)",
            ],
        ),
        (
            ["gpu=5", "burst=1", "gpu=2"],
            [
                "gpu=5: is one of several sizes of this group: give one",
                "gpu=2: is one of several sizes of this group: give one",
            ],
        ),
        (["burst=5"], ["--set workers.burst.min: must be at most max (4), got 5"]),
    ],
)
def test_all_that_is_wrong_is_said_at_once(
    sizes: list[str], problems: list[str], tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as caught:
        scale.scaled(cluster(tmp_path), sizes)
    assert [str(problem) for problem in caught.value.problems] == problems


def test_a_size_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no size was given: it must be GROUP=N, such as gpu=3"):
        scale.scaled(cluster(tmp_path), [])


def test_a_cluster_of_backend_existing_is_not_scaled(tmp_path: Path) -> None:
    text = (
        "{name: lab, backend: existing, existing: {address: 'http://127.0.0.1:8265'}, auth: none}"
    )
    with pytest.raises(
        RequestError, match="cluster lab is run by somebody else: Trainyard cannot change its size"
    ):
        scale.scaled(cluster(tmp_path, text), ["gpu=3"])
