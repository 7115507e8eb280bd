"""Amounts of resources as people read them."""

from __future__ import annotations

import pytest

from trainyard.backends.kuberay.capacity.amounts import shown

KIB = 1024 * 1000


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("nvidia.com/gpu", 2000, "2"),
        ("memory", 64 * 1024**2 * KIB, "64GiB"),
        ("memory", 22_412_852 * KIB, "21.3GiB"),
        ("memory", 700_500 * KIB, "684MiB"),
        ("limits.memory", 512 * 1024 * KIB, "512MiB"),
        ("memory", -5, "0"),
    ],
)
def test_what_is_free_is_rounded_down_to_a_unit_that_people_compare_in(name: str, amount: int, text: str) -> None:
    assert shown(name, amount) == text
