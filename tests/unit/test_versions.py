"""Versions of Ray that another user's cluster may have."""

from __future__ import annotations

import pytest

from trainyard import versions


@pytest.mark.parametrize(
    ("ray", "is_too_old"),
    [
        ("2.9.3", True),
        ("2.30.0", True),
        ("2.31.0", False),
        ("2.60.0", False),
        ("2.100.0", False),
        ("3.0.0.dev0", False),
    ],
)
def test_the_oldest_ray_that_works_is_known(ray: str, is_too_old: bool) -> None:
    assert versions.is_too_old(ray) == is_too_old
