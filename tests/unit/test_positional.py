"""RUN may be left out, and given with or without its flag."""

from __future__ import annotations

import pytest

from trainyard.tasks import namespace
from trainyard.tasks.positional import with_flags

CONTEXTS = {str(context.name): context for context in namespace.to_contexts()}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("train.logs", "train.logs"),
        ("train.logs run-1", "train.logs --run run-1"),
        ("train.logs --all run-1", "train.logs --all --run run-1"),
        ("train.logs --task a run-1 --all", "train.logs --task a --run run-1 --all"),
        ("train.logs --run run-1", "train.logs --run run-1"),
        ("train.status run-1 train.logs run-2", "train.status --run run-1 train.logs --run run-2"),
        ("train.status train.logs", "train.status train.logs"),
        ("train.logs --run run-1 run-2", "train.logs --run run-1 run-2"),
        ("image.build -f lab", "image.build -f lab"),
        ("image.build -f lab schola --base x", "image.build -f lab --image schola --base x"),
        ("image.push schola -f lab --json", "image.push --image schola -f lab --json"),
        ("train.dispatch jobs/a -f lab", "train.dispatch jobs/a -f lab"),
        ("train.dispatch jobs/a extra", "train.dispatch jobs/a extra"),
        ("cluster.status extra", "cluster.status extra"),
        ("cluster.scale gpu=3 cpu=1 -f lab", "cluster.scale --sizes gpu=3 --sizes cpu=1 -f lab"),
        ("cluster.scale -f lab --sizes gpu=3 cpu=1", "cluster.scale -f lab --sizes gpu=3 --sizes cpu=1"),
    ],
)
def test_a_run_without_its_flag_gets_it(given: str, meant: str) -> None:
    assert with_flags(given.split(), CONTEXTS) == meant.split()
