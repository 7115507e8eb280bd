"""The step and its loop: ask, change, ask again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fake_time import FakeTime
from trainyard.errors import NotReadyError, OutsideError
from trainyard.steps import (
    YES,
    Answer,
    PlannedStep,
    Stage,
    Step,
    StepResult,
    before_each,
    no,
    plan,
    run,
)


class Recorder:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def started(self, title: str) -> None:
        self.lines.append(f"started {title}")

    def expanding(self, title: str) -> None:
        self.lines.append(f"expanding {title}")

    def saw(self, title: str, detail: str) -> None:
        self.lines.append(f"saw {detail}")

    def finished(self, result: StepResult) -> None:
        self.lines.append(f"finished {result.title}")

    def failed(self, title: str, seconds: float) -> None:
        self.lines.append(f"failed {title}")


class Lamp:
    """Something that is off, and on some questions after it was switched."""

    def __init__(self, *, lit: bool = False, slow: int = 0) -> None:
        self.lit = lit
        self.slow = slow
        self.switched = 0

    def done(self) -> Answer:
        if self.lit and self.slow:
            self.slow -= 1
            return no(f"warming up, {self.slow} more")
        return YES if self.lit else no("dark")

    def do(self) -> None:
        self.switched += 1
        self.lit = True


def _lamp_step(lamp: Lamp, *, title: str = "Light the lamp", after: str | None = None) -> Step:
    return Step(title, title, done=lamp.done, do=lamp.do, deadline=1.0, every=0.25, after=after)


def _refuse() -> None:
    raise OutsideError("the fuse blew")


def _explode() -> list[Step]:
    raise OutsideError("the fuse blew")


def _interrupt() -> None:
    raise KeyboardInterrupt


def _too_early() -> list[Step]:
    raise AssertionError("asked too early")


def test_a_step_that_holds_is_not_done_again() -> None:
    lamp = Lamp(lit=True)
    assert run([_lamp_step(lamp)], Recorder(), clock=FakeTime().clock()) == [
        StepResult("Light the lamp", False, 0.0)
    ]
    assert lamp.switched == 0


def test_a_step_is_done_once_and_polled_until_it_holds() -> None:
    lamp, progress = Lamp(slow=2), Recorder()
    results = run([_lamp_step(lamp)], progress, clock=FakeTime().clock())
    assert (results, lamp.switched) == ([StepResult("Light the lamp", True, 0.5)], 1)
    assert progress.lines == [
        "started Light the lamp",
        "saw warming up, 1 more",
        "saw warming up, 0 more",
        "finished Light the lamp",
    ]


def test_a_missed_deadline_reports_the_last_seen_state() -> None:
    lamp, progress = Lamp(slow=100), Recorder()
    with pytest.raises(NotReadyError) as raised:
        run([_lamp_step(lamp)], progress, clock=FakeTime().clock())
    assert str(raised.value) == (
        "Light the lamp: not done after 1 s\n"
        "  at last seen: warming up, 95 more\n"
        "  -> Repeat the same command: it continues from here."
    )
    assert progress.lines[-1] == "failed Light the lamp"


@pytest.mark.parametrize(
    ("do", "error"), [(_refuse, OutsideError), (_interrupt, KeyboardInterrupt)]
)
def test_a_step_that_fails_or_is_interrupted_stops_the_ones_after_it(
    do: Callable[[], None], error: type[BaseException]
) -> None:
    lamp, progress = Lamp(), Recorder()
    broken = Step("try", "Try it", done=lambda: no(""), do=do)
    with pytest.raises(error):
        run([broken, _lamp_step(lamp)], progress)
    assert (lamp.switched, progress.lines) == (0, ["started Try it", "failed Try it"])


def test_a_plan_asks_and_changes_nothing() -> None:
    dark, lit = Lamp(), Lamp(lit=True)
    steps = [
        _lamp_step(lit, title="Light the hall"),
        _lamp_step(dark, title="Light the yard", after="Light the hall"),
    ]
    assert plan(steps) == [
        PlannedStep("Light the hall", "already", ""),
        PlannedStep("Light the yard", "would", "dark"),
    ]
    assert dark.switched == 0


def test_a_plan_asks_neither_steps_nor_stages_that_cannot_be_asked_yet() -> None:
    build = _lamp_step(Lamp(), title="Build the house")
    inside = Stage("light", "Light it", _too_early, after="Build the house")
    later = replace(_lamp_step(Lamp(lit=True), title="Read in it", after="light"), disruptive=True)
    progress = Recorder()
    assert plan([Stage("look", "Look", lambda: [build]), inside, later], progress) == [
        PlannedStep("Build the house", "would", "dark"),
        PlannedStep("Light it", "after", "after: Build the house"),
        PlannedStep("Read in it", "after", "after: Light it", disruptive=True),
    ]

    # Stages may take long to look.
    assert progress.lines == ["expanding Look", "finished Look"]
    built = Stage(
        "light",
        "Light it",
        lambda: [_lamp_step(Lamp(), title="Light the hall")],
        after="Build the house",
    )

    house = _lamp_step(Lamp(lit=True), title="Build the house")
    assert [step.state for step in plan([house, built])] == ["already", "would"]


def test_a_caller_may_refuse_once_before_the_first_step_that_ends_nodes() -> None:
    hall, yard, asked = Lamp(), Lamp(), list[int]()
    disruptive = [
        replace(_lamp_step(lamp), disruptive=True) for lamp in (Lamp(lit=True), yard, Lamp())
    ]

    assert [step.disruptive for step in plan([_lamp_step(hall), *disruptive])] == [
        False,
        True,
        True,
        True,
    ]

    run(
        [_lamp_step(hall), *disruptive],
        Recorder(),
        before_disruption=lambda: asked.append(hall.switched),
    )

    assert asked == [1]
    dark = Lamp()
    with pytest.raises(OutsideError, match="the fuse blew"):
        run([replace(_lamp_step(dark), disruptive=True)], Recorder(), before_disruption=_refuse)

    assert dark.switched == 0
    run([disruptive[0], _lamp_step(Lamp())], Recorder(), before_disruption=_interrupt)


def test_a_stage_is_expanded_once_what_comes_before_it_holds() -> None:
    hall, yard, progress = Lamp(), Lamp(), Recorder()

    def expand() -> list[Step | Stage]:
        assert hall.lit
        return [
            Stage(
                "look-into",
                "Look into the yard",
                lambda: [_lamp_step(yard, title="Light the yard")],
            )
        ]

    results = run(
        [_lamp_step(hall, title="Light the hall"), Stage("look-outside", "Look outside", expand)],
        progress,
    )
    assert [result.title for result in results] == ["Light the hall", "Light the yard"]

    assert progress.lines == [
        "started Light the hall",
        "finished Light the hall",
        "expanding Look outside",
        "finished Look outside",
        "expanding Look into the yard",
        "finished Look into the yard",
        "started Light the yard",
        "finished Light the yard",
    ]


def test_a_stage_that_cannot_be_expanded_is_shown_as_failed() -> None:
    progress = Recorder()
    with pytest.raises(OutsideError, match="the fuse blew"):
        run([Stage("look-outside", "Look outside", _explode), _lamp_step(Lamp())], progress)
    assert progress.lines == ["expanding Look outside", "failed Look outside"]


def test_hooks_before_questions_and_changes_are_called_for_stages_too() -> None:
    lit, dark, inner = Lamp(lit=True), Lamp(), Lamp()
    asked: list[int] = []
    changes: list[int] = []
    steps: list[Step | Stage] = [
        _lamp_step(lit),
        _lamp_step(dark),
        Stage("look", "Look", lambda: [_lamp_step(inner)]),
    ]

    def now() -> int:
        return dark.switched + inner.switched

    wrapped = before_each(
        steps, question=lambda: asked.append(now()), change=lambda: changes.append(now())
    )
    plan(wrapped)
    assert (asked, changes) == ([0, 0, 0], [])
    run(wrapped, Recorder(), clock=FakeTime().clock())
    assert (asked[3:], changes) == ([0, 0, 1, 1, 2], [0, 1])


def test_a_deadline_starts_again_while_the_step_makes_progress() -> None:
    time = FakeTime()
    came = [1, 2, 3, 3, 3]

    def done() -> Answer:
        return no("on its way", moved=came.pop(0) if time.now else 0)

    step = Step("pull", "pull", done, lambda: time.clock().sleep(1.0), deadline=5.0, every=4.0)
    with pytest.raises(NotReadyError, match="pull: not done after 5 s"):
        run([step], Recorder(), clock=time.clock())
    # Once at 1, 5 and 9 s something had moved: 5 s later it was given up.
    assert time.now == 17.0
