"""OpenSSH's configuration of a host, and the errors about hosts that cannot be reached."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import cast

import pytest
from paramiko import Channel, ECDSAKey, HostKeys
from paramiko.ssh_exception import BadHostKeyException

from trainyard.errors import OutsideError, RequestError
from trainyard.seams.ssh import config, forward, login, many
from trainyard.seams.ssh.config import Address, Settings
from trainyard.seams.ssh.hosts import last_words

KEYS = (ECDSAKey.generate(), ECDSAKey.generate())
KEY_TYPE = "ecdsa-sha2-nistp256"


def settings(home: Path, address: str, text: str = "") -> Settings:
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "config").write_text(text)
    return config.settings(config.parse(address), {"HOME": str(home), "SSH_AUTH_SOCK": "/agent"})


@pytest.mark.parametrize(
    ("written", "address", "shown"),
    [
        ("Lab", Address("Lab"), "Lab"),
        ("ops@lab:8022", Address("lab", "ops", 8022), "-p 8022 ops@lab"),
        ("ssh://ops@[fd00::1]:22", Address("fd00::1", "ops", 22), "-p 22 ops@fd00::1"),
    ],
)
def test_an_address_is_written_as_for_ssh(written: str, address: Address, shown: str) -> None:
    assert (config.parse(written), str(address)) == (address, shown)


@pytest.mark.parametrize(
    "written", ["", "-oProxyCommand=x", "http://lab", "lab/path", "lab:port", "lab:0"]
)
def test_a_malformed_address_is_refused(written: str) -> None:
    with pytest.raises(RequestError, match="is not the address of a host"):
        config.parse(written)


def test_without_configuration_it_is_ssh_s_own_defaults(tmp_path: Path) -> None:
    read = settings(tmp_path, "ops@lab")
    assert (read.host, read.port, read.user, read.agent) == ("lab", 22, "ops", "/agent")
    assert read.keys == tuple(
        tmp_path / ".ssh" / name for name in ("id_ed25519", "id_ecdsa", "id_rsa")
    )
    assert read.known_hosts[0] == tmp_path / ".ssh" / "known_hosts"
    assert (read.jumps, read.proxy_command, read.pin, read.known_as) == ((), None, False, "lab")


def test_typed_values_precede_the_first_fitting_block_and_that_the_next(tmp_path: Path) -> None:
    text = (
        "Host lab\n HostName 192.0.2.1\n Port 8022\n ProxyJump door, gate:23\nHost *\n User "
        "all\n Port 99\n"
    )
    read = settings(tmp_path, "ops@lab", text)
    assert (read.host, read.port, read.user) == ("192.0.2.1", 8022, "ops")
    assert (read.jumps, read.known_as) == (("door", "gate:23"), "[192.0.2.1]:8022")
    assert settings(tmp_path, "lab:22", text).known_as == "192.0.2.1"
    assert settings(tmp_path, "other", text).user == "all"


def test_included_files_are_read_where_they_are_included(tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "more").mkdir(parents=True)
    (tmp_path / ".ssh" / "more" / "lab").write_text("Host lab\n User first\n")
    assert settings(tmp_path, "lab", "Include more/*\nHost lab\n User second\n").user == "first"


def test_blocks_count_for_the_hosts_that_they_name_by_whichever_form(tmp_path: Path) -> None:
    text = (
        "Host other lab\n User a\nHost=lab\n Port 9\nHost l* !lab\n Port 8\nMatch host lab\n "
        "HostName 192.0.2.1\n"
    )
    read = settings(tmp_path, "lab", f"{text}Host labs\n ProxyJump door\n")
    assert (read.user, read.port, read.host, read.jumps) == ("a", 9, "192.0.2.1", ())
    assert settings(tmp_path, "late", text).port == 8


def test_a_host_is_found_in_known_hosts_by_its_name_alone_hashed_or_not() -> None:
    hashed = [HostKeys.hash_host(name) for name in ("[lab]:8022", "other")]
    lines = [
        f"{names} ssh-ed25519 AAAA"
        for names in ("[lab]:8022,192.0.2.1", "lab", "[lab]:80220", *hashed)
    ]
    text = "\n".join(["# [lab]:8022", "", *lines])
    assert list(login.known_lines("[lab]:8022", text)) == [lines[0], lines[3]]
    assert list(login.known_lines("other", text)) == [lines[4]]


def test_strict_checking_agents_and_known_hosts_are_as_written(tmp_path: Path) -> None:
    text = (
        "Host *\n StrictHostKeyChecking accept-new\n IdentityAgent none\n UserKnownHostsFile ~/k\n"
    )
    read = settings(tmp_path, "lab:8022", text)
    assert (read.pin, read.agent, read.known_as, read.known_hosts[0]) == (
        True,
        "",
        "[lab]:8022",
        tmp_path / "k",
    )


@pytest.mark.parametrize(
    ("reason", "what", "where", "hint"),
    [
        (
            BadHostKeyException("lab", *KEYS),
            "the host key of lab has changed",
            f"it is {KEY_TYPE} {KEYS[0].fingerprint}, and {KEY_TYPE} {KEYS[1].fingerprint} is known",
            "ssh-keygen -R '[192.0.2.1]:8022'",
        ),
        (
            login.PasswordRequiredError("/k"),
            "the key to log in to lab has a passphrase, and no agent holds it",
            "/k",
            "ssh-add /k",
        ),
        (
            TimeoutError("timed out"),
            "lab cannot be reached by SSH on port 8022",
            "timed out",
            "ssh lab true",
        ),
        (
            socket.gaierror("not known"),
            "the name lab cannot be looked up",
            "not known",
            "Is it spelled right?",
        ),
    ],
)
def test_each_way_not_to_get_there_has_its_words_and_its_hint(
    reason: Exception, what: str, where: str, hint: str, tmp_path: Path
) -> None:
    read = settings(
        tmp_path, "lab", "Host lab\n HostName 192.0.2.1\n Port 8022\n User ops\n ProxyJump door\n"
    )
    error = login.unreachable(reason, Address("lab"), read)
    assert error.what == what
    assert hint in str(error.hint)
    assert error.where == f"ssh lab: {where}"


def test_each_host_keeps_its_remedy_unless_it_is_the_same_for_all() -> None:
    first, second = (
        OutsideError(f"{name} is off", where="ssh", hint=f"Switch {name} on.") for name in "ab"
    )

    with pytest.raises(OutsideError) as differ:
        many.refuse({"a": first, "b": second})

    assert differ.value.lines() == [
        "2 hosts failed",
        "  - a: is off: ssh -> Switch a on.",
        "  - b: is off: ssh -> Switch b on.",
        f"  -> {many.AGAIN}",
    ]

    with pytest.raises(OutsideError) as alike:
        many.refuse({"a": first, "b": first})

    assert alike.value.lines()[1:] == [
        "  - a: is off: ssh",
        "  - b: a is off: ssh",
        "  -> Switch a on.",
    ]


class ClosedChannel:
    """A channel whose connection was closed, as paramiko raises it."""

    def sendall(self, *_: bytes) -> None:
        raise EOFError

    shutdown_write = sendall


class FakeSocket:
    def recv(self, size: int) -> bytes:
        return b"x"


def test_data_sent_to_a_closed_connection_is_no_error() -> None:
    forward._send(cast(socket.socket, FakeSocket()), cast(Channel, ClosedChannel()))


FOLDED = """\
error: cannot perform the following tasks:
- Mount snap "x" (1) (cannot find signatures with metadata for
  snap/component
  "x.snap")
-----
"""


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            FOLDED,
            (
                '- Mount snap "x" (1) (cannot find signatures with metadata for snap/component '
                '"x.snap")'
            ),
        ),
        ("one\nlast\n", "last"),
        ("Traceback:\n" + "  File x\n" * 20, "File x"),
        ("  indented alone", "indented alone"),
        ("", ""),
    ],
)
def test_a_programs_last_message_is_reported_on_one_line(printed: str, said: str) -> None:
    assert last_words(printed) == said
