"""The engine of rules: which one counts, what it says, and the error that it becomes."""

from __future__ import annotations

import re

from trainyard.diagnosis import Diagnosis, Rule, explain, merged
from trainyard.errors import OutsideError, PrerequisiteError

RULES = (
    Rule(
        r'secret "(?P<name>[^"]+)" not found',
        "there is no Secret {name}",
        hint="Make it: `kuberay: {volumes: [...]}`, or {command}",
        error=PrerequisiteError,
        key="secret",
    ),
    Rule(r"not found", "there is no {image}", reasons=("ErrImagePull", "404")),
)


def test_the_first_fitting_rule_says_the_cause_with_its_finds_and_facts() -> None:
    found = explain('secret "token" not found', RULES, command="kubectl")
    assert found == Diagnosis(
        "there is no Secret token",
        hint="Make it: `kuberay: {volumes: [...]}`, or kubectl",
        summary="there is no Secret token",
        key="secret",
        error=PrerequisiteError,
        raw='secret "token" not found',
    )


def test_a_rule_may_need_a_reason() -> None:
    assert explain("not found", RULES, image="ray") is None
    found = explain("not found", RULES, reason="404", image="ray")
    assert found and found.message == "there is no ray"


def test_a_text_without_a_matching_rule_has_no_cause() -> None:
    assert explain("something else", RULES) is None
    found = explain("something else", (*RULES, Rule("", "it was refused")))
    assert found is not None
    assert found.message == "it was refused"


def test_an_error_has_nodes_cause_log_place_and_remedy() -> None:
    cause = Diagnosis(
        "ended; the end of its log:",
        hint="Look.",
        raw="x",
        nodes=("a", "b", "c", "d"),
        log_tail=lambda: "   boom",
    )
    assert cause.to_error("pod a").lines() == [
        "a, b, c and 1 more ended; the end of its log:\n   boom",
        "  at pod a",
        "  -> Look.",
    ]
    assert cause.to_error().where == "x"


def test_one_cause_of_several_nodes_is_said_once() -> None:
    first = Diagnosis("cannot pull", nodes=("a",), hosts=("h1",))
    other = Diagnosis("cannot pull", nodes=("a",), error=PrerequisiteError)
    second = Diagnosis("cannot pull", nodes=("b",), hosts=("h1",), raw="later")
    assert merged([first, other, second]) == (
        Diagnosis("cannot pull", nodes=("a", "b"), hosts=("h1",)),
        other,
    )


def test_a_systems_message_is_shortened_to_one_line() -> None:
    found = explain("a\n  b" + "c" * 1000, [Rule("", "m")])
    assert found and re.fullmatch(r"a bc{597}\.\.\.", found.raw)
    assert found.error is OutsideError
