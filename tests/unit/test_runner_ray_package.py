"""The job's files as Ray hands them to its workers."""

from __future__ import annotations

import io
import zipfile

import pytest
from trainyard_runner import ray_package


def zipped(**files: str) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as bundle:
        for name, text in files.items():
            bundle.writestr(name.replace("__", "/").replace("_whl", ".whl"), text)
    return whole.getvalue()


def store_of(kept: dict[str, bytes], pinned: list[str]) -> ray_package.Store:
    return ray_package.Store(
        get=kept.get,
        put=kept.__setitem__,
        delete=kept.pop,
        pin=lambda uri, seconds: pinned.append(uri),
    )


def test_a_job_of_one_part_is_used_unchanged_without_an_upload() -> None:
    kept: dict[str, bytes] = {}
    made = ray_package.environment({"uv": ["numpy"]}, {"job.zip": b"zip"}, store_of(kept, []))
    assert (made, kept) == (({"uv": ["numpy"], "working_dir": "gcs://job.zip"}, 3), {})


def test_a_job_of_several_parts_is_put_as_one() -> None:
    kept: dict[str, bytes] = {}
    made, size = ray_package.environment(
        None, {"a.zip": b"first", "b.zip": b"second"}, store_of(kept, [])
    )
    assert {f"gcs://{name}": content for name, content in kept.items()} == {
        made["working_dir"]: b"firstsecond"
    }
    assert size == len("firstsecond")


def test_wheels_lie_beside_the_jobs_files() -> None:
    kept = {"wheels.zip": zipped(a_whl="own", b_whl="b")}
    declared = {
        "uv": ["${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/a.whl"],
        "working_dir": "gcs://wheels.zip",
    }
    parts = {"job.zip": zipped(train="code", a_whl="own")}
    made, _ = ray_package.environment(declared, parts, store_of(kept, []))
    with zipfile.ZipFile(io.BytesIO(kept[made["working_dir"].removeprefix("gcs://")])) as bundle:
        found = {name: bundle.read(name).decode() for name in bundle.namelist()}

    assert found == {"train": "code", "a.whl": "own", "b.whl": "b"}
    assert made["uv"] == declared["uv"]

    with pytest.raises(LookupError, match="are no longer on the cluster"):
        ray_package.environment({"working_dir": "gcs://gone.zip"}, parts, store_of(kept, []))


def test_packages_are_pinned_at_once_and_again_in_time() -> None:
    now = [0.0]
    pinned: list[str] = []
    uris = ray_package.packages(
        {"working_dir": "gcs://wheels.zip"},
        {
            "working_dir": "gcs://job.zip",
            "py_modules": ["gcs://module.zip", "s3://bucket/other.zip"],
        },
    )

    pins = ray_package.Pins(
        uris, lambda uri, seconds: pinned.append(f"{uri} {seconds}"), clock=lambda: now[0]
    )
    once = [f"gcs://{name}.zip {ray_package.PINNED}" for name in ("wheels", "job", "module")]
    assert pinned == once

    for now[0] in (1.0, 200.0, 201.0):
        pins.look()

    assert pinned == once * 2


def test_an_attempt_has_a_package_of_its_own_while_it_runs() -> None:
    kept = {"job.zip": b"zip"}
    pinned: list[str] = []
    store = store_of(kept, pinned)
    declared = {"working_dir": "gcs://job.zip", "pip": ["numpy"]}
    first, second = (
        ray_package.OwnPackage(declared, f"r:t:{attempt}", store) for attempt in (1, 2)
    )
    assert first.environment["working_dir"] != second.environment["working_dir"]
    assert first.environment["pip"] == ["numpy"]
    first.keep()
    first.keep()
    assert kept == {
        "job.zip": b"zip",
        first.environment["working_dir"].removeprefix("gcs://"): b"zip",
    }
    assert pinned == [first.environment["working_dir"]]
    first.close()
    second.close()
    assert kept == {"job.zip": b"zip"}

    with pytest.raises(LookupError, match="no longer on the cluster"):
        ray_package.OwnPackage({"working_dir": "gcs://gone.zip"}, "r:t:1", store).keep()
