"""Prove that a cluster can train."""

from __future__ import annotations

from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.report import Report


@task(*CLUSTER, dry=True)
def run(call: Call) -> Report:
    """Test nodes, versions, GPUs, isolation, transfer and space; exit 5 if something is wrong."""
    from trainyard import lifecycle, smoke
    from trainyard.tasks import smoke_report

    endpoint = lifecycle.connect(call.cluster())
    return smoke_report.planned(endpoint) if call.dry else smoke_report.tested(smoke.smoke(endpoint, call.progress))
