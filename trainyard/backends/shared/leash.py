"""A cluster's leash, its idle and deadline timer: steps, record, description.

The timer is a program that each backend starts on the cluster
(runner/trainyard_runner/leash.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainyard_runner import leash as program

from trainyard.backends.contract import ClusterStatus, LeashStatus, Site
from trainyard.backends.shared.record import read_json, write_private
from trainyard.errors import RequestError
from trainyard.results.formats import utc
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.units import format_duration
from trainyard.steps import YES, Answer, Step, no

# The leash's container or pod uses the head's image, which is pulled, so it starts quickly.
HOLDS_SECONDS = 120.0
# Two reads of a cluster's creation time may differ by this much: a machine corrects its clock.
CLOCK_SECONDS = 5.0
_RECORD = "leash.json"


@dataclass(frozen=True)
class Leash:
    """A backend's functions for a cluster's leash.

    `made` returns the cluster's creation time in Unix seconds, or None without
    a cluster. `set` makes or replaces the leash.
    """

    observe: Callable[[], LeashStatus | None]
    made: Callable[[], float | None]
    set: Callable[[LeashStatus], None]
    take_off: Callable[[], None]


def steps(spec: ClusterSpec, site: Site, leash: Leash, *, after: str) -> list[Step]:
    """Return the step that sets the file's leash, or takes off a former one.

    Neither step disturbs runs.
    """
    if spec.leash is None:
        if leash.observe():
            return [_take_off(site, leash)]
        return []

    def done() -> Answer:
        observed = leash.observe()
        desired = desired_leash(spec, leash.made())
        if observed and desired and _is_same(observed, desired):
            return Answer(True, words(observed))

        _refuse_over(spec, desired)
        if observed is None:
            return no("the cluster has no leash")
        return no(f"now: {words(observed)}")

    def do() -> None:
        desired = desired_leash(spec, leash.made())
        if desired is None:
            return
        leash.set(desired)
        write_private(site.state / _RECORD, settings(desired))

    limits = []
    if spec.leash.idle is not None:
        limits.append(f"idle {format_duration(spec.leash.idle)}")
    if spec.leash.deadline is not None:
        limits.append(f"deadline {format_duration(spec.leash.deadline)}")
    title = f"Set the leash: {', '.join(limits)}"
    return [Step("leash", title, done, do, after=after, kind="leash")]


def proof(spec: ClusterSpec, leash: Leash, *, after: str) -> list[Step]:
    """Return the step that waits for proof that the leash can end the cluster.

    If the leash has a problem, the step first sets it again.
    """

    if spec.leash is None:
        return []

    def done() -> Answer:
        observed = leash.observe()
        if observed is None:
            return no("the cluster has no leash")
        if observed.problem:
            return no(observed.problem)
        return YES

    def do() -> None:
        desired = desired_leash(spec, leash.made())
        if desired and not done().holds:
            leash.set(desired)

    title = "The leash holds"
    return [Step("leash-holds", title, done, do, HOLDS_SECONDS, every=0.5, after=after)]


def desired_leash(spec: ClusterSpec, made: float | None) -> LeashStatus | None:
    """Return the file's leash for a cluster made at `made`."""
    if spec.leash is None or made is None:
        return None
    deadline = None
    if spec.leash.deadline is not None:
        deadline = made + spec.leash.deadline
    return LeashStatus(spec.leash.idle, deadline)


def differences(
    spec: ClusterSpec, made: float | None, observed: LeashStatus | None
) -> Iterator[str]:
    """Yield the leash's drift from the file, else its problem, if any.

    Without a cluster (`made` is None) there is no drift.
    """
    desired = desired_leash(spec, made)
    is_same = desired is None and observed is None
    if desired and observed:
        is_same = _is_same(observed, desired)

    if made is not None and not is_same:
        yield f"leash: {_words_or_none(observed)} now, {_words_or_none(desired)} desired"
    elif observed and observed.problem:
        yield f"leash: {observed.problem}"


def _words_or_none(leash: LeashStatus | None) -> str:
    if leash is None:
        return "none"
    return words(leash)


def words(leash: LeashStatus) -> str:
    """Say when a cluster ends: `ends at TIME, or after 2h without a job`."""
    ends = []
    if leash.deadline is not None:
        ends.append(f"at {utc(leash.deadline, readable=True)}")
    if leash.idle is not None:
        ends.append(f"after {format_duration(leash.idle)} without a job")
    return f"ends {', or '.join(ends)}"


def settings(leash: LeashStatus, **more: Any) -> str:
    """Return the limits as JSON, together with the keys of `more`."""
    return json.dumps({"idle": leash.idle, "deadline": leash.deadline, **more}, sort_keys=True)


def source() -> list[str]:
    """Return the command that runs the leash's program.

    The caller appends the settings. The source is an argument of `python3 -c`,
    so that the image needs nothing but Python.
    """
    return ["python3", "-c", Path(program.__file__).read_text(encoding="utf-8")]


def ended(now: ClusterStatus, state: Path) -> str:
    """Return a remark if a cluster with a leash no longer runs, else "".

    The remark says whether the leash, by its limits, can have ended the
    cluster.
    """
    record = read_json(state / _RECORD)
    if not record or now.state not in ("absent", "broken"):
        return ""
    if now.leash and not now.leash.problem:
        return ""

    since = (state / _RECORD).stat().st_mtime
    leash = LeashStatus(record["idle"], record["deadline"], since=since)
    first_end = program.ends_at(leash.deadline, leash.idle, since)
    if first_end and first_end > time.time() + CLOCK_SECONDS:
        end = "broken"
        if now.state == "absent":
            end = "gone"
        return f"it is {end}, and not by its leash ({words(leash)})"
    return (
        f"it had a leash ({words(leash)}); outputs that were not fetched before it ended are lost"
    )


def is_recorded(state: Path) -> bool:
    return (state / _RECORD).exists()


def _refuse_over(spec: ClusterSpec, desired: LeashStatus | None) -> None:
    if desired and desired.deadline is not None and desired.deadline <= time.time():
        raise RequestError(
            f"the leash's deadline is over: it {words(desired)}",
            where=f"the deadline counts from the creation of cluster {spec.name}",
            hint="Set a later `leash.deadline`; or replace the cluster: trainyard cluster.up "
            "--recreate",
        )


def _take_off(site: Site, leash: Leash) -> Step:
    def done() -> Answer:
        observed = leash.observe()
        if observed:
            return no(f"now: {words(observed)}")
        return YES

    def do() -> None:
        leash.take_off()
        (site.state / _RECORD).unlink(missing_ok=True)

    return Step("leash-off", "Take the leash off", done, do)


def _is_same(observed: LeashStatus, desired: LeashStatus) -> bool:
    if observed.deadline is None or desired.deadline is None:
        return observed == replace(desired, since=observed.since, problem=observed.problem)
    is_close = abs(observed.deadline - desired.deadline) < CLOCK_SECONDS
    return observed.idle == desired.idle and is_close
