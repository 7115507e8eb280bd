"""The step that removes all things of one kind, until none is left."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted, named


def step(
    noun: str,
    listed: Callable[[], list[str]],
    remove: Callable[[list[str]], object],
    *,
    deadline: float,
    every: float = 0.2,
    disruptive: bool = False,
) -> Step:
    """Return the step that removes things until `listed` returns none.

    `listed` is also called at once, for the step's title.
    """

    def done() -> Answer:
        left = listed()
        if left:
            return no(f"still there: {named(left)}")
        return YES

    def remove_all() -> None:
        remove(listed())

    present = listed()
    title = f"Leave no {noun}"
    if present:
        title = f"Remove {counted(len(present), noun)}: {named(present)}"

    id = f"remove-{noun.replace(' ', '-')}"
    return Step(id, title, done, remove_all, deadline=deadline, every=every, disruptive=disruptive)
