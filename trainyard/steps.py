"""The step, and the one loop that runs a list of them: ask, change, ask again.

No exit code of an outside system is believed. A step is done when its own question says so, and
only then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from trainyard.errors import NotReadyError

PlannedState = Literal["already", "would", "after"]
# "leash": it gives the cluster its leash; "stays": its detail says what `cluster.down` leaves on
# purpose.
StepKind = Literal["change", "leash", "stays"]


@dataclass(frozen=True)
class Answer:
    """An outside system's answer: whether the step holds, and in detail what is there.

    `warnings` are for the user, although the step holds; `detail` repeats them where there is
    nothing else to tell. `moved` is a number that changes as long as the awaited thing moves (bytes
    that came): each change begins the step's deadline again.
    """

    holds: bool
    detail: str = ""
    moved: int = 0
    warnings: tuple[str, ...] = ()


YES = Answer(True)


def no(detail: str, *, moved: int = 0) -> Answer:
    """Return "not yet", with what holds instead."""
    return Answer(False, detail, moved)


def warning(*texts: str) -> Answer:
    """Return "it holds", with warnings; without texts it just holds."""
    return Answer(True, "; ".join(texts), warnings=texts)


def nothing() -> None:
    """Change nothing: for steps that only ask, or wait for the work of an earlier one."""


@dataclass(frozen=True)
class Step:
    """One thing that should hold.

    `id` names the step for code, as "security-group" or "tag:latest": unique in its list, and
    stable, since the title is for people, and may get better words. `kind` is for those who treat
    some steps in another way. `done` only reads. `do` makes it so, may be repeated, and is called
    only if `done` said no. `deadline` is how long `done` may take to hold after `do`, or after
    something moved, in seconds. `after` is the id of the step without which `done` cannot be asked
    yet: a plan prints its title instead of asking. `disruptive`: `do` ends or replaces nodes on
    which tasks may run. `needs` is the flag without which `do` refuses, "" where it needs none.
    """

    id: str
    title: str
    done: Callable[[], Answer]
    do: Callable[[], None]
    deadline: float = 60.0
    every: float = 0.2
    after: str | None = None
    disruptive: bool = False
    needs: str = ""
    kind: StepKind = "change"


@dataclass(frozen=True)
class Stage:
    """Steps that are known only when their turn comes; `expand` may ask, but changes nothing.

    A list that is built of stages costs no question. `id` is as a step's; `after` is the id of the
    step without which `expand` cannot ask yet: a plan prints its title instead of expanding.
    """

    id: str
    title: str
    expand: Callable[[], Sequence[Step | Stage]]
    after: str | None = None


def before_each(
    steps: Sequence[Step | Stage], *, question: Callable[[], None], change: Callable[[], None]
) -> list[Step | Stage]:
    """Return the steps with `question` before each question, and `change` before each change."""

    def wrapped(step: Step | Stage) -> Step | Stage:
        if isinstance(step, Stage):
            expand = step.expand
            return replace(
                step, expand=lambda: before_each(expand(), question=question, change=change)
            )

        done = step.done
        do = step.do

        def ask() -> Answer:
            question()
            return done()

        def act() -> None:
            change()
            do()

        return replace(step, done=ask, do=act)

    return [wrapped(step) for step in steps]


def within(seconds: float | None, steps: Sequence[Step | Stage]) -> Sequence[Step | Stage]:
    """Return the steps, which all have to hold within `seconds` from now; None: no limit."""
    if seconds is None:
        return steps
    give_up = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > give_up:
            raise NotReadyError(f"not all was done within {seconds:g} s", hint="Allow more time.")

    return before_each(steps, question=check, change=nothing)


@dataclass(frozen=True)
class StepResult:
    """The result of a step, or of a stage, which changes nothing itself."""

    title: str
    changed: bool
    seconds: float
    detail: str = ""
    is_stage: bool = False
    kind: StepKind = "change"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedStep:
    """The effect that a step would have now."""

    title: str
    state: PlannedState
    detail: str = ""
    disruptive: bool = False
    needs: str = ""
    warnings: tuple[str, ...] = ()


class Progress(Protocol):
    """A display of what happens, for a user."""

    def started(self, title: str) -> None:
        """A step begins."""

    def expanding(self, title: str) -> None:
        """A stage begins to ask for its steps, which may take as long as the network does."""

    def saw(self, title: str, detail: str) -> None:
        """A step waits, and this is what it last saw."""

    def finished(self, result: StepResult) -> None:
        """A step holds."""

    def failed(self, title: str, seconds: float) -> None:
        """A step broke; the error follows."""


@dataclass(frozen=True)
class Clock:
    """Time as an argument, so that the loop can be tested without waiting."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def run(
    steps: Sequence[Step | Stage],
    progress: Progress,
    *,
    clock: Clock | None = None,
    before_disruption: Callable[[], None] | None = None,
) -> list[StepResult]:
    """Make every step hold, in order; stop at the first that cannot.

    `before_disruption` is called once, before the first disruptive step that does not hold yet; it
    may refuse. Returns the results of the steps, without those of stages. Raises NotReadyError when
    a deadline passes, and whatever the calls of steps and stages raise.
    """
    clock = clock or Clock()
    results = []
    for step in _expanded(steps, progress, clock):
        if step.disruptive and before_disruption and not step.done().holds:
            before_disruption()
            before_disruption = None
        results.append(_run_step(step, progress, clock))
    return results


def plan(steps: Sequence[Step | Stage], progress: Progress | None = None) -> list[PlannedStep]:
    """Ask every step whether it holds; change nothing. `progress` is told the stages."""
    return [planned for _, planned in asked(steps, progress)]


def _expanded(steps: Sequence[Step | Stage], progress: Progress, clock: Clock) -> Iterator[Step]:
    """Yield every step; a stage is expanded once all before it hold."""
    for step in steps:
        if isinstance(step, Stage):
            yield from _expanded(_expand(step, progress, clock), progress, clock)
        else:
            yield step


def _expand(stage: Stage, progress: Progress, clock: Clock) -> Sequence[Step | Stage]:
    began = clock.now()
    progress.expanding(stage.title)
    try:
        steps = stage.expand()
    except BaseException:
        progress.failed(stage.title, clock.now() - began)
        raise
    progress.finished(StepResult(stage.title, False, clock.now() - began, is_stage=True))
    return steps


def asked(
    steps: Sequence[Step | Stage],
    progress: Progress | None = None,
    missing: dict[str, str] | None = None,
) -> Iterator[tuple[Step | Stage, PlannedStep]]:
    """Yield each step with what it would do.

    `missing` collects the titles of those that do not hold, by their ids, across stages.
    """
    missing = {} if missing is None else missing
    for step in steps:
        if step.after in missing:
            missing[step.id] = step.title
            disruptive = isinstance(step, Step) and step.disruptive
            yield (
                step,
                PlannedStep(step.title, "after", f"after: {missing[step.after]}", disruptive),
            )
        elif isinstance(step, Stage):
            if progress:
                expanded = _expand(step, progress, Clock())
            else:
                expanded = step.expand()
            yield from asked(expanded, progress, missing)
        else:
            answer = step.done()
            if not answer.holds:
                missing[step.id] = step.title

            state: PlannedState = "already" if answer.holds else "would"
            yield (
                step,
                PlannedStep(
                    step.title,
                    state,
                    answer.detail,
                    step.disruptive,
                    step.needs,
                    warnings=answer.warnings,
                ),
            )


def _run_step(step: Step, progress: Progress, clock: Clock) -> StepResult:
    began = clock.now()
    progress.started(step.title)

    try:
        answer = step.done()
        changed = not answer.holds
        if changed:
            step.do()
            answer = _wait(step, progress, clock)
    except BaseException:
        progress.failed(step.title, clock.now() - began)
        raise

    seconds = clock.now() - began
    result = StepResult(
        step.title, changed, seconds, answer.detail, kind=step.kind, warnings=answer.warnings
    )
    progress.finished(result)

    return result


def _wait(step: Step, progress: Progress, clock: Clock) -> Answer:
    """Ask until the step holds or its deadline passes."""
    give_up = clock.now() + step.deadline
    moved = 0
    while True:
        answer = step.done()
        if answer.holds:
            return answer

        if answer.moved != moved:
            moved = answer.moved
            give_up = clock.now() + step.deadline

        if clock.now() >= give_up:
            raise NotReadyError(
                f"{step.title}: not done after {step.deadline:.0f} s",
                where=f"last seen: {answer.detail}" if answer.detail else None,
                hint="Repeat the same command: it continues from here.",
            )

        progress.saw(step.title, answer.detail)
        clock.sleep(step.every)
