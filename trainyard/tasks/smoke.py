"""Prove that a cluster can train."""

from __future__ import annotations

from trainyard.tasks import lazy
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.report import Report


@task(*CLUSTER, dry=True)
def run(call: Call) -> Report:
    """Test nodes, versions, GPUs, isolation, transfer and space; exit 5 if something is wrong."""
    from trainyard import smoke

    endpoint = lazy.lifecycle.connect(call.cluster())
    if call.dry:
        return lazy.smoke_report.planned(endpoint)
    return lazy.smoke_report.tested(smoke.smoke(endpoint, call.progress))
