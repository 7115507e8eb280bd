"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainyard_runner import tree


@pytest.fixture
def deep_path(tmp_path: Path) -> Iterator[Path]:
    """Give a directory for trees that pytest cannot remove."""
    yield tmp_path
    tree.remove(str(tmp_path))
