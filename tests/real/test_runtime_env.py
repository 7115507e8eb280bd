"""A job that brings its own packages: built by Ray on the node, for the job's tasks alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.real.jobs import newest, write_job
from tests.real.wheels import write_wheel
from tests.real.yard import Yard

# A backend of its own, so that a build fetches nothing.
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{directory}/parting-2.0-py3-none-any.whl", "w") as wheel:
        wheel.write("parting.py")
        wheel.writestr("parting-2.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: parting\\nVersion: 2.0\\n")
        wheel.writestr(
            "parting-2.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        )
        wheel.writestr("parting-2.0.dist-info/RECORD", "")
    return "parting-2.0-py3-none-any.whl"
"""


def write_package(directory: Path) -> None:
    """Write a package from which a wheel of one module can be built."""
    directory.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PYPROJECT)
    (directory / "backend.py").write_text(BACKEND)
    (directory / "parting.py").write_text("WORDS = 'and good bye'\n")


def test_wheels_are_built_and_installed_for_the_tasks_as_a_runtime_env_file_says(yard: Yard, tmp_path: Path) -> None:
    here = replace(yard, environ={**yard.environ, "XDG_CACHE_HOME": str(tmp_path)})
    write_job(
        here,
        "wheels",
        "command: [python, train.py]\nruntime_env: runtime_env.yaml\n",
        train="""
        import os, greeting, parting
        print(greeting.WORDS, "in", os.environ["PLACE"], parting.WORDS)
        """,
    )
    job = here.home / "jobs" / "wheels"
    (job / "runtime_env.yaml").write_text(
        "uv: ['${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/dist/greeting-1.0-py3-none-any.whl']\n"
        "wheels: [../../packages/parting]\nenv_vars: {PLACE: the yard}\n"
    )
    write_wheel(job / "dist")
    write_package(here.home / "packages" / "parting")
    assert "Build a wheel of parting (done" in here.run("train.dispatch", "wheels", "--skip-smoke").stderr
    log = newest(here) / "logs" / "wheels.1.log"
    assert log.read_text() == "hello from a wheel in the yard and good bye\n"
    assert "Build a wheel of parting (already" in here.run("train.dispatch", "wheels", "--no-wait").stderr
    here.run("train.logs")


def test_a_package_that_cannot_be_built_sends_nothing_and_shows_why(yard: Yard, tmp_path: Path) -> None:
    here = replace(yard, environ={**yard.environ, "XDG_CACHE_HOME": str(tmp_path)})
    write_package(here.home / "jobs" / "broken" / "mine")
    (here.home / "jobs" / "broken" / "mine" / "backend.py").write_text("raise SystemExit('no backend today')\n")
    write_job(here, "broken", "command: ['true']\nruntime_env: {wheels: [mine]}\n")
    failed = here.run("train.dispatch", "broken", expect=2)
    assert "error: no wheel could be built of " in failed.stderr
    assert "no backend today" in failed.stderr
    assert not list(here.results.glob("broken-*"))
