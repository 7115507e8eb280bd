"""What the local backend wants of a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard import versions
from trainyard.backends.local.layout import node_plans
from trainyard.backends.local.machine import Machine, check
from trainyard.errors import PrerequisiteError
from trainyard.spec import ClusterSpec

GIBIBYTE = 1024**3
PLANS = node_plans(
    ClusterSpec.model_validate({"name": "lab", "backend": "local", "workers": [{"name": "cpu", "count": 2}]}),
    cpus=2,
    memory=4 * GIBIBYTE,
    gpu_ids=(),
)
GOOD = Machine(
    memory_free=8 * GIBIBYTE,
    disk_free=50 * GIBIBYTE,
    shared_memory_free=8 * GIBIBYTE,
    open_files=65536,
    ray=versions.RAY,
)


def test_a_good_machine_has_no_warnings() -> None:
    assert check(PLANS, GOOD) == []


def test_little_shared_memory_is_a_warning() -> None:
    assert check(PLANS, replace(GOOD, shared_memory_free=64 * 1024**2)) == [
        "shared memory has 0.1 GiB free, the nodes may use 3.0 GiB: large objects will be slow"
    ]


def test_a_system_without_shared_memory_is_not_warned_about() -> None:
    assert check(PLANS, replace(GOOD, shared_memory_free=None)) == []


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (
            replace(GOOD, ray=None),
            f"the local backend needs ray {versions.RAY}, and no ray is installed in this Python\n"
            f"  -> Install it: python -m pip install 'ray[default]=={versions.RAY}'",
        ),
        (
            replace(GOOD, ray="2.9.3"),
            f"the local backend needs ray {versions.RAY}, and ray 2.9.3 is installed in this Python\n"
            f"  -> Install it: python -m pip install 'ray[default]=={versions.RAY}'",
        ),
        (
            replace(GOOD, memory_free=GIBIBYTE // 2),
            "too little memory: 0.5 GiB free, Ray's own processes need 1.2 GiB\n  -> Free some, or want fewer nodes.",
        ),
        (
            replace(GOOD, disk_free=GIBIBYTE // 2),
            "too little disk: 0.5 GiB free, Ray's files in /tmp need 1.0 GiB\n  -> Free some, or want fewer nodes.",
        ),
        (
            replace(GOOD, open_files=256),
            "a process may open 256 files here; Ray needs 1024\n"
            "  -> Raise the limit: ulimit -Hn 1024 (as root), or in /etc/security/limits.conf",
        ),
    ],
    ids=["no ray", "another ray", "memory", "disk", "open files"],
)
def test_what_a_machine_lacks_is_said_with_what_to_do(machine: Machine, message: str) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        check(PLANS, machine)
    assert str(raised.value) == message
