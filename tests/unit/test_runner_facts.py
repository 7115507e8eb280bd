"""What a node says about itself."""

from __future__ import annotations

import pytest
from trainyard_runner.facts import gpu_models

LISTING = """\
GPU 0: NVIDIA L4 (UUID: GPU-1111)
  MIG 1g.5gb Device 0: (UUID: MIG-aaaa)
GPU 1: NVIDIA L4 (UUID: GPU-2222)
GPU 10: NVIDIA L4 (UUID: GPU-3333)
"""


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 3), ("0", 1), ("0,10", 2), ("GPU-2222", 1), ("1, GPU-3333", 2), ("", 0), ("7", 0)]
)
def test_only_the_gpus_of_the_node_are_counted(visible: str | None, count: int) -> None:
    assert gpu_models(LISTING, visible=visible) == ["NVIDIA L4"] * count
