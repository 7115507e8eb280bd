"""Python modules that a job sends along."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from trainyard.dispatch import modules
from trainyard.dispatch.package import Package


def names_in(package: str | Package) -> list[str]:
    assert isinstance(package, Package)
    return zipfile.ZipFile(io.BytesIO(package.read(0))).namelist()


def test_a_directory_is_packed_below_its_name_and_an_address_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "shared" / "inner").mkdir(parents=True)
    (tmp_path / "shared" / "inner" / "deep.py").touch()
    (tmp_path / "lone.py").touch()
    directory, file, address = modules.packed(["shared", "lone.py", "s3://bucket/m.zip"], tmp_path)
    assert names_in(directory) == ["shared/inner/deep.py"]
    assert names_in(file) == ["lone.py"]
    assert address == "s3://bucket/m.zip"


def test_a_missing_module_and_a_wheel_are_named_as_no_modules(tmp_path: Path) -> None:
    (tmp_path / "a.whl").touch()
    found = [
        str(problem)
        for problem in modules.problems(["nosuch", "a.whl", "https://example.org/m.zip"], tmp_path)
    ]
    assert found == [
        "runtime_env.py_modules.0: no such directory or .py file: nosuch",
        "runtime_env.py_modules.1: a.whl is a wheel: name it under `wheels`",
    ]
