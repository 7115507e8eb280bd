"""What Docker Compose and ssh say, in our words."""

from __future__ import annotations

import pytest

from trainyard.seams import docker_compose, ssh


def test_the_reason_is_what_stands_after_the_reports_about_containers() -> None:
    said = (
        " Network trainyard-lab  Created",
        " Container trainyard-lab-head  Starting",
        "Error response from daemon: Bind for 127.0.0.1:8265 failed: port is already allocated",
    )
    assert docker_compose.reason(said) == (
        "Error response from daemon: Bind for 127.0.0.1:8265 failed: port is already allocated"
    )


def test_words_that_are_not_known_are_shown_as_they_are() -> None:
    assert docker_compose.reason(("no configuration file", "provided")) == "no configuration file\nprovided"
    assert docker_compose.reason(()) == "it said nothing"


def test_ssh_never_asks_and_keeps_the_user_s_own_checks() -> None:
    assert ssh.command("ssh://ops@host:2222", "-L", "1:127.0.0.1:2") == [
        *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-p", "2222"),
        *("-L", "1:127.0.0.1:2", "--", "ops@host"),
    ]


@pytest.mark.parametrize(
    ("said", "what", "hint"),
    [
        (
            "ops@host: Permission denied (publickey).",
            "the Docker host does not let us in by SSH",
            "It must let you in without a password: ssh-copy-id -p 2222 ops@host",
        ),
        (
            "Host key verification failed.",
            "the Docker host does not let us in by SSH",
            "Its host key is not known here. Look at it and accept it once: ssh -p 2222 ops@host",
        ),
        (
            "ssh: connect to host host port 2222: Connection refused",
            "the Docker host cannot be reached by SSH",
            "It must work without a password or a question: ssh -p 2222 ops@host true",
        ),
    ],
)
def test_a_host_that_is_not_there_or_does_not_let_us_in_is_told_with_what_helps(
    said: str, what: str, hint: str
) -> None:
    assert ssh.refused("ssh://ops@host:2222", ["Warning: something", said]).lines() == [
        what,
        f"  at ssh://ops@host:2222: {said}",
        f"  -> {hint}",
    ]


@pytest.mark.parametrize(("address", "known"), [("ssh://ops@host", "host"), ("ssh://host:2222", "'[host]:2222'")])
def test_a_changed_host_key_is_an_error_of_its_own(address: str, known: str) -> None:
    said = ["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "Host key verification failed."]
    assert ssh.refused(address, said).hint == (
        f"Its host key changed. If that is known to be right: ssh-keygen -R {known}"
    )
