"""A job that brings its own packages: built by Ray on the node, for the job's tasks alone."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard


def write_wheel(directory: Path) -> None:
    """Write a wheel of one module that needs nothing else."""
    directory.mkdir(parents=True)
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(directory / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "WORDS = 'hello from a wheel'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_a_wheel_is_installed_for_the_tasks_and_variables_are_set(yard: Yard) -> None:
    write_job(
        yard,
        "wheels",
        """
        command: [python, train.py]
        runtime_env: {wheels: [dist/greeting-1.0-py3-none-any.whl], env_vars: {PLACE: the yard}}
        """,
        train="""
        import os, greeting
        print(greeting.WORDS, "in", os.environ["PLACE"])
        """,
    )
    write_wheel(yard.home / "jobs" / "wheels" / "dist")
    yard.run("train.dispatch", "wheels", "--skip-smoke")
    assert (newest(yard) / "logs" / "wheels.1.log").read_text() == "hello from a wheel in the yard\n"
