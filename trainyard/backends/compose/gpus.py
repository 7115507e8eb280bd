"""Before nodes want GPUs: Docker shows that it can give them to a container at all."""

from __future__ import annotations

from trainyard.backends import nvidia
from trainyard.backends.compose.wanted import Wanted
from trainyard.steps import YES, Answer, Step, no


def steps(asked: Wanted, *, after: str) -> list[Step]:
    """Return the step that tries it, where real GPUs are wanted; nodes that already have theirs are proof enough."""
    if not asked.gpu_ids:
        return []
    tried: list[tuple[str, ...]] = []

    def done() -> Answer:
        missing = asked.difference().missing
        if tried or not any(plan.gpu_ids for plan in asked.plans if plan.name in missing):
            return YES
        return no("not tried yet")

    def try_it() -> None:
        nvidia.prove(asked.engine, asked.image.reference, asked.gpu_ids)
        tried.append(asked.gpu_ids)

    return [Step("Give the GPUs to a container, for a moment", done=done, do=try_it, after=after)]
