"""Hosts by SSH, on real sshds: settings and keys, commands, sudo, files, ports, many at once."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bed import hosts
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.places import need
from tests.bed.programs import missing
from trainyard.errors import NotReadyError
from trainyard.seams.forwarding import last_error
from trainyard.seams.ssh import forward
from trainyard.seams.ssh.connection import Connection
from trainyard.seams.ssh.login import HostError
from trainyard.seams.ssh.many import gather

OTHER_PORT = 2222


@pytest.fixture(scope="module")
def two(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Give two hosts; the second has an sshd on another port too, and a password for sudo."""
    need(missing())
    with hosts.bare_hosts(engine, tmp_path_factory.mktemp("ssh"), count=2) as made:
        made[1].shell(
            f"/usr/sbin/sshd -p {OTHER_PORT}; echo ops:s3cret | chpasswd; echo 'ops ALL=(ALL) "
            "ALL' > /etc/sudoers.d/ops"
        )
        yield made


@pytest.fixture
def home(two: list[Host], tmp_path: Path) -> Path:
    """Give a home with the key and the known hosts of both hosts."""
    (tmp_path / ".ssh").mkdir()
    for name in ("id_ed25519", "known_hosts"):
        (tmp_path / ".ssh" / name).write_bytes((two[0].home / ".ssh" / name).read_bytes())
    known = tmp_path / ".ssh" / "known_hosts"
    ours = next(line for line in known.read_text().splitlines() if line.startswith(two[1].ip))
    known.write_text(
        known.read_text() + ours.replace(two[1].ip, f"[{two[1].ip}]:{OTHER_PORT}") + "\n"
    )
    known.write_text(known.read_text() + ours.replace(two[1].ip, "127.0.0.1") + "\n")
    return tmp_path


def to(address: str, home: Path, **environ: str) -> Connection:
    return Connection(address, {"HOME": str(home), **environ})


def refusal(connection: Connection) -> list[str]:
    with pytest.raises(HostError) as refused:
        connection.run(["true"])
    return refused.value.lines()


def test_a_command_returns_its_code_and_outputs_and_gets_its_whole_input(
    two: list[Host], home: Path
) -> None:
    host = to(two[0].ssh, home)
    ran = host.run(["sh", "-c", 'echo "$1"; echo err >&2; exit 3', "sh", "a 'b'  $c"])
    assert (ran.code, ran.stdout, ran.stderr) == (3, "a 'b'  $c\n", "err\n")
    assert host.run(["wc", "-c"], stdin=b"x" * 5_000_000).stdout.strip() == "5000000"
    assert len(host.run(["head", "-c", "5000000", "/dev/zero"]).stdout) == 1024 * 1024
    with pytest.raises(NotReadyError, match="sleep did not end within 1 s"):
        host.run(["sleep", "60"], seconds=1.0)


def test_more_commands_than_sshd_lets_one_connection_have_run_side_by_side(
    two: list[Host], home: Path
) -> None:
    host = to(two[0].ssh, home)
    words = [str(number) for number in range(30)]
    results, errors = gather(
        words, lambda word: host.run(["sh", "-c", f"sleep 1; echo {word}"]).stdout.strip()
    )
    assert (list(results.values()), errors) == (words, {})


def test_sudo_works_with_and_without_a_password_and_names_a_missing_one(
    two: list[Host], home: Path
) -> None:
    assert (
        to(two[0].ssh, home).sudo(["sh", "-c", "cat; id -un"], stdin=b"in\n").stdout == "in\nroot\n"
    )
    second = f"{two[1].ssh}:{OTHER_PORT}"
    held = to(second, home, TRAINYARD_SUDO_PASSWORD="s3cret")
    assert held.sudo(["sh", "-c", "cat; id -un"], stdin=b"in\n").stdout == "in\nroot\n"
    for password in ("", "wrong"):
        with pytest.raises(
            HostError, match="Set TRAINYARD_SUDO_PASSWORD to the password of user ops there"
        ):
            to(second, home, TRAINYARD_SUDO_PASSWORD=password).sudo(["true"])


def test_a_root_command_by_ssh_gets_the_password_and_its_own_input(
    two: list[Host], home: Path
) -> None:
    environ = {**os.environ, **hosts.environ(two[0].home), "TRAINYARD_SUDO_PASSWORD": "s3cret"}
    for host in two:
        asked = to(host.ssh, home, TRAINYARD_SUDO_PASSWORD="s3cret")
        words = asked.root_shell(["sh", "-c", "cat; id -un; exit 7"], terminal=False)
        assert "s3cret" not in str(words)
        done = subprocess.run(words, env=environ, input="in\n", capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (7, "in\nroot\n"), done.stderr


def test_a_file_appears_whole_or_not_at_all(two: list[Host], home: Path, tmp_path: Path) -> None:
    host = to(two[0].ssh, home)
    (tmp_path / "large").write_bytes(os.urandom(3_000_000))
    host.put("/etc/large", tmp_path / "large")
    assert two[0].run("stat", "-c", "%a %U %s", "/etc/large").stdout.strip() == "644 root 3000000"
    host.put("/tmp/it's", b"one\n")
    assert two[0].run("cat", "/tmp/it's").stdout == "one\n"
    with pytest.raises(HostError, match="/proc/small cannot be written"):
        host.put("/proc/small", b"x")


def test_a_port_leads_to_the_host_and_still_does_when_the_connection_broke(
    two: list[Host], home: Path
) -> None:
    host = to(two[0].ssh, home)
    port = forward.local_port(host, 22)
    assert _greeting(port).startswith("SSH-2.0-OpenSSH")
    _end_connections(two[0])
    assert _greeting(port).startswith("SSH-2.0-OpenSSH")
    dead = forward.local_port(host, 1)
    assert _greeting(dead) == ""
    assert "onnect" in last_error(dead)


def test_aliases_includes_other_ports_and_jump_hosts_are_as_ssh_has_them(
    two: list[Host], home: Path
) -> None:
    (home / ".ssh" / "config").write_text(
        f"Include more/*\nHost *\n User ops\n IdentityFile {home}/.ssh/id_ed25519\n"
    )
    (home / ".ssh" / "more").mkdir()
    (home / ".ssh" / "more" / "lab").write_text(
        f"Host Door\n HostName {two[0].ip}\n"
        f"Host inner\n HostName {two[1].ip}\n Port {OTHER_PORT}\n ProxyJump Door\n"
        f"Host loop\n HostName 127.0.0.1\n ProxyJump Door,{two[1].ip}:{OTHER_PORT}\n"
    )

    assert to("Door", home).run(["hostname"]).stdout == "host-1\n"
    seen = to("inner", home).run(["sh", "-c", "hostname; echo $SSH_CONNECTION"]).stdout.split()
    assert (seen[0], seen[1], seen[-1]) == ("host-2", two[0].ip, str(OTHER_PORT))
    assert to("loop", home).run(["hostname"]).stdout == "host-2\n"
    (home / ".ssh" / "config").write_text(
        f"Host lost\n HostName 127.0.0.1\n Port 1\n ProxyJump {two[0].ssh}\n"
    )
    assert refusal(to("lost", home))[0] == "lost cannot be reached by SSH on port 1"


def test_a_host_key_is_pinned_and_a_changed_one_is_never_taken(two: list[Host], home: Path) -> None:
    known = home / ".ssh" / "known_hosts"
    right, ip = known.read_text(), two[0].ip
    known.write_text("")
    lines = refusal(to(f"ssh://{two[0].ssh}", home))
    assert (lines[0], lines[2]) == (
        f"the host key of {ip} is not known here",
        f"  -> Check the key and accept it once: ssh {two[0].ssh}",
    )
    assert "ssh-ed25519 SHA256:" in lines[1]
    (home / ".ssh" / "config").write_text("Host *\n StrictHostKeyChecking accept-new\n")
    assert to(two[0].ssh, home).run(["true"]).code == 0
    assert known.read_text().split()[2] in right
    theirs = next(line for line in right.splitlines() if line.startswith(two[1].ip))
    known.write_text(theirs.replace(two[1].ip, ip) + "\n")
    lines = refusal(to(two[0].ssh, home))
    assert lines[0] == f"the host key of {ip} has changed"
    assert lines[2].endswith(f"ssh-keygen -R '{ip}'")


def test_keys_come_from_the_agent_too_and_a_rejected_login_says_its_kind(
    two: list[Host], home: Path
) -> None:
    key = home / ".ssh" / "id_ed25519"
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "phrase", "-f", key], check=True)
    assert refusal(to(two[0].ssh, home))[2] == f"  -> Add the key to the agent: ssh-add {key}"
    held = home / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(held)], stdout=subprocess.DEVNULL)

    try:
        ask = home / "ask"
        ask.write_text("#!/bin/sh\necho phrase\n")
        ask.chmod(0o755)

        environ = {
            **os.environ,
            "SSH_AUTH_SOCK": str(held),
            "SSH_ASKPASS": str(ask),
            "SSH_ASKPASS_REQUIRE": "force",
        }

        subprocess.run(
            ["sh", "-c", f"until [ -S {held} ]; do sleep 0.1; done; ssh-add -q {key}"],
            env=environ,
            check=True,
        )

        assert to(two[0].ssh, home, SSH_AUTH_SOCK=str(held)).run(["true"]).code == 0
    finally:
        agent.terminate()
        agent.wait()

    key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    assert refusal(to(two[0].ssh, home))[0] == f"{two[0].ip} refuses every key of user ops"


def test_one_hosts_failure_is_that_hosts(two: list[Host], home: Path) -> None:
    named = [
        two[0].ssh,
        f"{two[0].ssh}:1",
        "ops@no-such-host.invalid",
        f"{two[1].ssh}:{OTHER_PORT}",
    ]

    results, errors = gather(named, lambda host: to(host, home).run(["hostname"]).stdout)
    assert results == {named[0]: "host-1\n", named[3]: "host-2\n"}
    assert [errors[name].what for name in named[1:3]] == [
        f"{two[0].ip} cannot be reached by SSH on port 1",
        "the name no-such-host.invalid cannot be looked up",
    ]


def _end_connections(host: Host) -> None:
    """End sshd's processes for its connections; one may already have ended with another."""
    sessions = sorted(map(int, host.run("pidof", "sshd").stdout.split()))[1:]
    assert sessions
    host.shell("; ".join(f"kill {pid} || true" for pid in sessions))


def _greeting(port: int) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        suppress(ConnectionResetError),
    ):
        return connection.recv(100).decode()
    return ""
