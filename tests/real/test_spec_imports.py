from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.core


def test_importing_the_spec_imports_nothing_heavy() -> None:
    heavy = "{'ray', 'torch', 'httpx', 'rich', 'invoke', 'psutil'}"
    program = (
        f"import sys, trainyard.spec.load, trainyard.spec.show; print(sorted({heavy} & "
        "set(sys.modules)))"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert found.stdout.strip() == "[]"


def test_importing_the_python_api_loads_no_command_line_and_no_backend() -> None:
    heavy = "{'ray', 'docker', 'kubernetes', 'paramiko', 'invoke', 'trainyard.tasks'}"
    program = (
        f"import sys; from trainyard import Cluster; print(sorted({heavy} & set(sys.modules)))"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert found.stdout.strip() == "[]"


def test_the_python_api_imports_less_than_sixty_modules_of_trainyard() -> None:
    ours = (
        "{name for name in sys.modules if name.partition('.')[0] in ('trainyard', "
        "'trainyard_runner')}"
    )
    program = f"import sys; from trainyard import Cluster; print(len({ours}))"

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert int(found.stdout) < 60
