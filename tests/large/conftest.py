"""Tests that take many minutes, or want other Rays, Pythons or downloads: `make test-large`, never
`make test`.

They have the fixtures of the real tests.
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

# For hangs only, as in pyproject.toml: one of these tests installs several Rays.
TIMEOUT = 3 * 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the bed, and let each test here take its time."""
    mark_what_needs_the_bed(items)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT))
