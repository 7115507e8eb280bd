"""Run steps: ask whether each one holds; if not, change it and ask again.

A step is done only when its question (`done`) says so: exit codes of outside
systems are not trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from trainyard.errors import NotReadyError

PlannedState = Literal["already", "would", "after"]
# "leash": the step sets the leash, the program that ends an idle or overdue cluster. "stays": the
# step's detail says what `cluster.down` leaves on purpose.
StepKind = Literal["change", "leash", "stays"]


@dataclass(frozen=True)
class Answer:
    """Whether a step holds; `detail` says what was observed.

    `warnings` are shown to the user although the step holds. `moved` measures
    progress, such as bytes downloaded; each change of it restarts the step's
    deadline.
    """

    holds: bool
    detail: str = ""
    moved: int = 0
    warnings: tuple[str, ...] = ()


YES = Answer(True)


def no(detail: str, *, moved: int = 0) -> Answer:
    return Answer(False, detail, moved)


def warning(*texts: str) -> Answer:
    return Answer(True, "; ".join(texts), warnings=texts)


def nothing() -> None:
    """Change nothing: the `do` of a step that only asks or waits."""


@dataclass(frozen=True)
class Step:
    """A condition that should hold: how to check it, and how to bring it about.

    `id` names the step for code ("security-group", "tag:latest"): stable, and
    unique in its list. The title is for people and may change. `kind` marks
    steps that are reported apart from other changes. `done` only reads. `do`
    makes the condition hold, may be repeated, and is called only if `done` said
    no. `deadline` is the limit in seconds for `done` to hold after `do`, or
    after the last change of `Answer.moved`; `every` is the pause between two
    checks, in seconds. `after` is the id of an earlier step that `done` depends
    on: while that step does not hold, a plan prints this step's title instead
    of calling `done`. With `disruptive`, `do` ends or replaces nodes on which
    tasks may run. `needs` is the flag without which `do` refuses, "" for none.
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
    """A list of steps that is computed only when a run or plan reaches it.

    `expand` may read from outside systems, but changes nothing. `id` and
    `after` are as in Step: `after` is the id of an earlier step that `expand`
    depends on.
    """

    id: str
    title: str
    expand: Callable[[], Sequence[Step | Stage]]
    after: str | None = None


def before_each(
    steps: Sequence[Step | Stage], *, question: Callable[[], None], change: Callable[[], None]
) -> list[Step | Stage]:
    """Return steps that call `question` before `done`, `change` before `do`.

    The steps of stages do so, too.
    """

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
    """Give the steps a common time limit, in seconds from this call.

    Once it has passed, the next `done` raises NotReadyError. None sets no
    limit.
    """
    if seconds is None:
        return steps
    give_up = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > give_up:
            raise NotReadyError(
                f"not all steps were done within {seconds:g} s", hint="Allow more time."
            )

    return before_each(steps, question=check, change=nothing)


@dataclass(frozen=True)
class StepResult:
    """The result of a step that holds, or of an expanded stage.

    A stage's `changed` is False.
    """

    title: str
    changed: bool
    seconds: float
    detail: str = ""
    is_stage: bool = False
    kind: StepKind = "change"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedStep:
    """The effect that a step would have now.

    `state` is "already" if the step holds, "would" if it would be done, and
    "after" if only another step makes it possible to ask.
    """

    title: str
    state: PlannedState
    detail: str = ""
    disruptive: bool = False
    needs: str = ""
    warnings: tuple[str, ...] = ()


class Progress(Protocol):
    """A display of running steps, for a user."""

    def started(self, title: str) -> None:
        """A step begins."""

    def expanding(self, title: str) -> None:
        """A stage begins to compute its steps, which may take a while."""

    def saw(self, title: str, detail: str) -> None:
        """A step still does not hold; `detail` says what was observed."""

    def finished(self, result: StepResult) -> None:
        """A step holds, or a stage is expanded."""

    def failed(self, title: str, seconds: float) -> None:
        """A step or a stage failed; its exception is raised next."""


@dataclass(frozen=True)
class Clock:
    """Time as an argument, so that tests need not wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def run(
    steps: Sequence[Step | Stage],
    progress: Progress,
    *,
    clock: Clock | None = None,
    before_disruption: Callable[[], None] | None = None,
) -> list[StepResult]:
    """Make every step hold, in order; stop at the first failure.

    `before_disruption` is called once, before the first disruptive step that
    does not hold; it may raise an error to refuse the change. Returns the
    results of steps, not of stages. Raises NotReadyError when a deadline
    passes, and any error of `done`, `do` and `expand`.
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
    """Ask every step whether it holds; change nothing.

    `progress` shows only stages.
    """
    return [planned for _, planned in asked(steps, progress)]


def _expanded(steps: Sequence[Step | Stage], progress: Progress, clock: Clock) -> Iterator[Step]:
    """Yield every step; a stage is expanded once all steps before it hold."""
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
    """Yield each step with its planned effect.

    A stage is expanded, or yielded itself if its `after` does not hold.
    `missing` collects the titles of steps that do not hold, by step id, also
    inside stages.
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
