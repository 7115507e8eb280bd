"""Tests that take many minutes, or need other Rays, Pythons or downloads: `make test-large` only.

They use the fixtures of the real tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.conftest import (  # noqa: F401 (pytest finds fixtures and hooks by their names here)
    cloud,
    docker_host,
    engine,
    fresh,
    kube,
    operator,
    private_engine,
    pytest_configure,
    yard,
)
from tests.real.conftest import pytest_collection_modifyitems as mark_what_needs_the_bed

# Only ends tests that hang, as the limit in pyproject.toml does: one test installs several Rays.
TIMEOUT = 3 * 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the bed, and give the tests of this directory a longer time limit."""
    mark_what_needs_the_bed(items)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT))
