"""Bare hosts by the thousand, played by one SSH server: each address of 127.1.0.0/16 is one.

The server runs in this process. Hosts accept the holder of the key and answer as a bare host would;
no command changes them.
"""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko import Channel, Ed25519Key, HostKeys, PKey, ServerInterface, Transport
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from tests.bed.hosts import USER

IN_A_NETWORK = 250
GIB = 2**30
# The backlog of the listener: more than the connections that wait at a time.
WAITING = 1024


@dataclass
class ManyHosts:
    """The server, and the home of a user who may log in; a host is identified by its address.

    The server accepts connections to `silent` hosts and never answers them. `hanging` hosts accept
    a login and answer no command. `changed` has, by address, the facts in which a host differs from
    a good one. `most` is the highest number of connections that were open at a time; `asked` counts
    commands.
    """

    count: int
    home: Path
    port: int
    silent: Collection[str]
    hanging: Collection[str]
    changed: Mapping[str, Mapping[str, object]]
    most: int = 0
    asked: int = 0
    _open: list[Transport] = field(default_factory=list)
    _held: list[socket.socket] = field(default_factory=list)

    def ssh(self) -> list[str]:
        """Return the hosts' SSH destinations, as a cluster file has them."""
        return [f"{USER}@{ip(number)}:{self.port}" for number in range(self.count)]

    def serve(self, listener: socket.socket) -> None:
        """Serve until the listener is closed."""
        key, allowed = (
            Ed25519Key.from_private_key_file(str(self.home / ".ssh" / name))
            for name in ("host", "id_ed25519")
        )

        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return

            address = connection.getsockname()[0]
            if address in self.silent:
                self._held.append(connection)
                continue

            transport = Transport(connection)
            transport.add_server_key(key)
            self._open = [other for other in self._open if other.is_active()] + [transport]
            self.most = max(self.most, len(self._open))
            transport.start_server(threading.Event(), _Host(self, address, allowed))

    def close(self) -> None:
        for transport in self._open:
            transport.close()
        for connection in self._held:
            connection.close()


class _Host(ServerInterface):
    """One connection to one host."""

    def __init__(self, hosts: ManyHosts, address: str, allowed: PKey) -> None:
        self._hosts = hosts
        self._address = address
        self._allowed = allowed

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: PKey) -> int:
        return AUTH_SUCCESSFUL if key == self._allowed else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Channel, command: bytes) -> bool:
        self._hosts.asked += 1
        threading.Thread(target=self._answer, args=(channel, command.decode())).start()
        return True

    def _answer(self, channel: Channel, command: str) -> None:
        # Read the input to its end: an answer before the client's request is granted comes too
        # early.
        while channel.recv(1024):
            pass

        if self._address in self._hosts.hanging:
            return

        code = 0
        if "machine_id" in command:
            channel.sendall(
                _facts(self._address, self._hosts.changed.get(self._address, {})).encode()
            )
        elif "true" not in command:
            channel.sendall_stderr(b"microk8s: command not found\n")
            code = 127

        channel.send_exit_status(code)
        channel.close()


def ip(number: int) -> str:
    return f"127.1.{number // IN_A_NETWORK}.{number % IN_A_NETWORK + 1}"


def _facts(address: str, changed: Mapping[str, object]) -> str:
    """Return a bare host's answer to the script with which Trainyard reads facts."""
    lines: dict[str, object] = {
        "clock": time.time(),
        "hostname": f"host-{address.replace('.', '-')}",
        "architecture": "x86_64",
        "kernel": "6.8.0-40-generic",
        "machine_id": address.encode().hex().zfill(32),
        "memory": 64 * GIB,
        "disk": 200 * GIB,
        "addresses": _text(
            f"1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet {address}/16 scope global "
            "eth0\n"
        ),
        "routes": _text(
            "default via 127.1.0.254 dev eth0 \n127.1.0.0/16 dev eth0 proto kernel scope link\n"
        ),
        "listening": _text("tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\n" * 20),
        "sysctl.fs.inotify.max_user_instances": 128,
        "sysctl.fs.inotify.max_user_watches": 65536,
        "sysctl.fs.aio-max-nr": 65536,
        "forward": "ACCEPT",
        "snapd": "2.63",
        "hosts": _text("127.0.0.1 localhost\n::1 localhost\n" * 5),
        **changed,
    }

    return "".join(f"{name} {value}\n" for name, value in lines.items())


@contextmanager
def many_hosts(
    home: Path,
    *,
    count: int,
    silent: Collection[str] = (),
    hanging: Collection[str] = (),
    changed: Mapping[str, Mapping[str, object]] | None = None,
) -> Iterator[ManyHosts]:
    """Serve hosts; write the user's key and the known hosts to `home`.

    The lines of known_hosts are hashed, as Debian's ssh writes them.
    """
    with socket.socket() as listener:
        # Reachable through the loopback interface only.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        listener.bind(("", 0))
        listener.listen(WAITING)
        made = ManyHosts(count, home, listener.getsockname()[1], silent, hanging, changed or {})
        _write_keys(made)
        thread = threading.Thread(target=made.serve, args=(listener,), daemon=True)
        thread.start()

        try:
            yield made
        finally:
            # Wakes the thread that waits for a connection.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            made.close()


def _write_keys(made: ManyHosts) -> None:
    directory = made.home / ".ssh"
    directory.mkdir(mode=0o700)
    for name in ("id_ed25519", "host"):
        _write_key(directory / name)
    key = (directory / "host.pub").read_text()
    names = [HostKeys.hash_host(f"[{ip(number)}]:{made.port}") for number in range(made.count)]
    (directory / "known_hosts").write_text("".join(f"{name} {key}\n" for name in names))


def _write_key(file: Path) -> None:
    """Write a key as ssh-keygen does: a machine without OpenSSH lacks that program."""
    key = Ed25519PrivateKey.generate()
    openssh = serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption())
    file.touch(mode=0o600)
    file.write_bytes(private)

    public = key.public_key()
    encoding = serialization.Encoding.OpenSSH
    text = public.public_bytes(encoding, serialization.PublicFormat.OpenSSH)
    file.with_suffix(".pub").write_bytes(text)


def _text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()
