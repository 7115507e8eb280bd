"""The step and its loop: ask, change, ask again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard.errors import NotReadyError, OutsideError
from trainyard.steps import YES, Answer, Clock, PlannedStep, Stage, Step, StepResult, no, plan, run


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


class Time:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> Clock:
        def sleep(seconds: float) -> None:
            self.now += seconds

        return Clock(now=lambda: self.now, sleep=sleep)


def _lamp_step(lamp: Lamp, *, title: str = "Light the lamp", after: str | None = None) -> Step:
    return Step(title, done=lamp.done, do=lamp.do, deadline=1.0, every=0.25, after=after)


def test_what_holds_already_is_not_done_again() -> None:
    lamp = Lamp(lit=True)
    assert run([_lamp_step(lamp)], Recorder(), clock=Time().clock()) == [StepResult("Light the lamp", False, 0.0)]
    assert lamp.switched == 0


def test_what_does_not_hold_is_done_once_and_asked_until_it_holds() -> None:
    lamp, progress = Lamp(slow=2), Recorder()
    results = run([_lamp_step(lamp)], progress, clock=Time().clock())
    assert results == [StepResult("Light the lamp", True, 0.5)]
    assert lamp.switched == 1
    assert progress.lines == [
        "started Light the lamp",
        "saw warming up, 1 more",
        "saw warming up, 0 more",
        "finished Light the lamp",
    ]


def test_a_deadline_says_what_was_seen_last() -> None:
    lamp, progress = Lamp(slow=100), Recorder()
    with pytest.raises(NotReadyError) as raised:
        run([_lamp_step(lamp)], progress, clock=Time().clock())
    assert str(raised.value) == (
        "Light the lamp: not done after 1 s\n"
        "  at last seen: warming up, 95 more\n"
        "  -> Repeat the same command: it continues from here."
    )
    assert progress.lines[-1] == "failed Light the lamp"


def test_a_failing_step_stops_the_ones_after_it() -> None:
    def explode() -> None:
        raise OutsideError("the fuse blew")

    lamp, progress = Lamp(), Recorder()
    broken = Step("Switch the mains on", done=lambda: no("off"), do=explode)
    with pytest.raises(OutsideError, match="the fuse blew"):
        run([broken, _lamp_step(lamp)], progress, clock=Time().clock())
    assert lamp.switched == 0
    assert progress.lines == ["started Switch the mains on", "failed Switch the mains on"]


def test_an_interrupted_step_is_shown_as_failed() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    progress = Recorder()
    with pytest.raises(KeyboardInterrupt):
        run([Step("Wait", done=lambda: no("not yet"), do=interrupt)], progress, clock=Time().clock())
    assert progress.lines == ["started Wait", "failed Wait"]


def test_a_plan_asks_and_changes_nothing() -> None:
    dark, lit = Lamp(), Lamp(lit=True)
    steps = [_lamp_step(lit, title="Light the hall"), _lamp_step(dark, title="Light the yard")]
    assert plan(steps) == [
        PlannedStep("Light the hall", "already", ""),
        PlannedStep("Light the yard", "would", "dark"),
    ]
    assert dark.switched == 0


def test_a_plan_does_not_ask_what_cannot_be_asked_yet() -> None:
    def impossible() -> Answer:
        raise AssertionError("asked too early")

    first = _lamp_step(Lamp(), title="Build the house")
    second = Step("Light it", done=impossible, do=lambda: None, after="Build the house")
    third = Step("Read in it", done=impossible, do=lambda: None, after="Light it")
    assert [step.state for step in plan([first, second, third])] == ["would", "after", "after"]
    assert plan([first, second])[1].detail == "after: Build the house"


def test_a_plan_asks_what_comes_after_something_that_holds() -> None:
    first = _lamp_step(Lamp(lit=True), title="Build the house")
    second = _lamp_step(Lamp(), title="Light it", after="Build the house")
    assert [step.state for step in plan([first, second])] == ["already", "would"]


def test_what_a_step_needed_only_meanwhile_is_taken_back_when_it_breaks() -> None:
    taken: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([Step("Try it", done=lambda: no(""), do=interrupt, cleanup=lambda: taken.append("back"))], Recorder())
    assert taken == ["back"]


def test_what_a_step_needed_only_meanwhile_is_taken_back_once_it_holds() -> None:
    lamp, taken = Lamp(), list[str]()
    step = replace(_lamp_step(lamp, title="Light it"), cleanup=lambda: taken.append("back"))
    run([step], Recorder())
    assert taken == ["back"]
    run([step], Recorder())
    assert taken == ["back"]


def test_before_the_first_step_that_ends_nodes_somebody_may_refuse_and_is_asked_once() -> None:
    hall, yard, asked = Lamp(), Lamp(), list[int]()
    disruptive = [replace(_lamp_step(lamp), disruptive=True) for lamp in (Lamp(lit=True), yard, Lamp())]
    run([_lamp_step(hall), *disruptive], Recorder(), before_disruption=lambda: asked.append(hall.switched))
    assert asked == [1]

    def refuse() -> None:
        raise OutsideError("somebody reads there")

    dark = Lamp()
    with pytest.raises(OutsideError, match="somebody reads there"):
        run([replace(_lamp_step(dark), disruptive=True)], Recorder(), before_disruption=refuse)
    assert dark.switched == 0


def test_nobody_is_asked_where_nothing_that_ends_nodes_is_to_be_done() -> None:
    def refuse() -> None:
        raise AssertionError("asked for nothing")

    lit = replace(_lamp_step(Lamp(lit=True)), disruptive=True)
    run([lit, _lamp_step(Lamp())], Recorder(), before_disruption=refuse)


def test_a_plan_says_which_steps_end_nodes() -> None:
    dark = replace(_lamp_step(Lamp(), title="Light the yard"), disruptive=True)
    after = replace(_lamp_step(Lamp(), after="Light the yard"), disruptive=True)
    assert [step.disruptive for step in plan([_lamp_step(Lamp()), dark, after])] == [False, True, True]


def test_a_stage_is_expanded_once_what_comes_before_it_holds() -> None:
    hall, yard, progress = Lamp(), Lamp(), Recorder()

    def expand() -> list[Step | Stage]:
        assert hall.lit
        return [Stage("Look into the yard", lambda: [_lamp_step(yard, title="Light the yard")])]

    results = run([_lamp_step(hall, title="Light the hall"), Stage("Look outside", expand)], progress)
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
    def explode() -> list[Step]:
        raise OutsideError("the fuse blew")

    progress = Recorder()
    with pytest.raises(OutsideError, match="the fuse blew"):
        run([Stage("Look outside", explode), _lamp_step(Lamp())], progress)
    assert progress.lines == ["expanding Look outside", "failed Look outside"]


def test_a_plan_expands_a_stage_that_can_be_asked_and_names_what_another_waits_for() -> None:
    def impossible() -> list[Step]:
        raise AssertionError("expanded too early")

    build = _lamp_step(Lamp(), title="Build the house")
    inside = Stage("Light it", impossible, after="Build the house")
    later = Step("Read in it", done=lambda: YES, do=lambda: None, after="Light it")
    assert [(step.title, step.state) for step in plan([Stage("Look", lambda: [build]), inside, later])] == [
        ("Build the house", "would"),
        ("Light it", "after"),
        ("Read in it", "after"),
    ]
    built = Stage("Light it", lambda: [_lamp_step(Lamp(), title="Light the hall")], after="Build the house")
    assert [step.state for step in plan([_lamp_step(Lamp(lit=True), title="Build the house"), built])] == [
        "already",
        "would",
    ]
