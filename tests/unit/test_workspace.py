"""A task's surroundings before its command starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.node.workspace import Spare, Workspace, environment
from trainyard_runner.wire.driver import Driver

ORDER: Any = {
    "run": "r-1",
    "task": "a",
    "attempt": 1,
    "index": 0,
    "count": 1,
    "cpus": 1.0,
    "env": {"COLOUR": "red"},
    "watch": None,
    "master": None,
    "ray_environment": {
        "working_dir": "gcs://_ray_pkg_1.zip",
        "env_vars": {"SHADE": "dark", "COLOUR": "blue"},
    },
    "ray_address": "192.0.2.1:6379",
}


def test_a_token_in_a_pod_s_variable_becomes_a_file_of_the_attempt_alone(tmp_path: Path) -> None:
    place = Workspace(tmp_path, ORDER, Spare())
    inherited = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "secret", "TRAINYARD_RUN": "another"}
    found = environment(ORDER, place, inherited=inherited, gpus=[])
    assert "secret" not in found.values()
    assert (found["RAY_AUTH_MODE"], found["TRAINYARD_RUN"], found["COLOUR"]) == (
        "token",
        "r-1",
        "red",
    )
    file = Path(found["RAY_AUTH_TOKEN_PATH"])
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("secret", 0o600)
    place.remove()
    assert not file.exists()


def test_a_token_that_is_in_a_file_stays_there(tmp_path: Path) -> None:
    inherited = {"RAY_AUTH_TOKEN_PATH": "/run/secrets/token"}
    found = environment(ORDER, Workspace(tmp_path, ORDER, Spare()), inherited=inherited, gpus=[])
    assert found["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/token"


def test_ray_drivers_get_their_command_s_files_packages_and_variables(tmp_path: Path) -> None:
    place = Workspace(tmp_path, ORDER, Spare())
    found = environment(ORDER, place, inherited={"PYTHONPATH": "/packages"}, gpus=[])
    assert found["PYTHONPATH"] == f"{place.directory}:/packages"
    assert found["RAY_OVERRIDE_JOB_RUNTIME_ENV"] == "1"
    config = json.loads(found["RAY_JOB_CONFIG_JSON_ENV_VAR"])
    variables = {"SHADE": "dark", "COLOUR": "red"}
    assert config["runtime_env"] == {"working_dir": "gcs://_ray_pkg_1.zip", "env_vars": variables}
    assert Driver.of(config["metadata"]) == Driver("r-1", "a", 1)


def test_variables_of_the_runtime_env_are_those_of_the_command_too(tmp_path: Path) -> None:
    order: Any = {**ORDER, "cpus": 2.0, "ray_environment": {"env_vars": {"OMP_NUM_THREADS": "4"}}}
    place = Workspace(tmp_path, order, Spare())
    found = environment(order, place, inherited={"OMP_NUM_THREADS": "4"}, gpus=[])
    assert (found["OMP_NUM_THREADS"], found["PYTHONUNBUFFERED"]) == ("4", "1")
    order["ray_environment"] = {}
    found = environment(order, place, inherited={"OMP_NUM_THREADS": "8"}, gpus=[])
    assert found["OMP_NUM_THREADS"] == "2"


def test_a_job_that_says_itself_what_ray_workers_get_is_taken_at_its_word(tmp_path: Path) -> None:
    own = {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}", "PYTHONPATH": "src"}
    place = Workspace(tmp_path, ORDER, Spare())
    order: Any = {**ORDER, "env": own}
    found = environment(order, place, inherited={}, gpus=[])
    assert found["RAY_JOB_CONFIG_JSON_ENV_VAR"] == "{}"
    assert found["PYTHONPATH"] == f"{place.directory}:src"


def test_unchanged_directories_are_handed_on_under_another_name(tmp_path: Path) -> None:
    spare = Spare()
    first = Workspace(tmp_path, ORDER, spare)
    (first.directory / "copied.py").write_text("print()")
    (first.directory / "sub" / "deep").mkdir(parents=True)
    first.hand_on()
    order: Any = {**ORDER, "task": "b"}
    second = Workspace(tmp_path, order, spare)
    assert list((tmp_path / "work").iterdir()) == [second.root]
    assert second.root.name.startswith("b.1.")
    assert not first.root.exists()
    assert [
        list(path.iterdir()) for path in (second.directory, second.output, second.checkpoint)
    ] == [[], [], []]
    second.hand_on()
    spare.close()
    assert list((tmp_path / "work").iterdir()) == []


def wait_for_another_ctime(directory: Path) -> None:
    """Return once the clock of the file system, which ticks every few milliseconds, has moved."""
    file = directory / "clock"
    file.touch()
    began = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == began:
        file.touch()
    file.unlink()


@pytest.mark.parametrize(
    "deed",
    [
        lambda place: (place.output / "weights").write_text("1"),
        lambda place: (place.checkpoint / "last").mkdir(),
        lambda place: (place.root / "stray").write_text("1"),
        lambda place: place.directory.chmod(0o500),
        lambda place: place.output.chmod(0o777),
        lambda place: (place.output.rmdir(), place.output.symlink_to("/tmp")),
        lambda place: (place.directory.rename(place.root / "moved"), place.directory.mkdir()),
        lambda place: (place.checkpoint.rmdir(), place.checkpoint.mkdir()),
    ],
)
def test_directories_to_which_a_command_did_something_are_not_handed_on(
    tmp_path: Path, deed: Callable[[Workspace], object]
) -> None:
    spare = Spare()
    first = Workspace(tmp_path, ORDER, spare)
    wait_for_another_ctime(tmp_path)
    deed(first)
    first.hand_on()
    assert list((tmp_path / "work").iterdir()) == []
    second = Workspace(tmp_path, ORDER, spare)
    assert second.output.stat().st_mode & 0o777 == 0o755
