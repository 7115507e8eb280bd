"""The container of a registry: made as its settings say, made anew, over the same images, when they differ.

Its configuration and secrets are put into it by us and kept nowhere else. The paths of configuration and data are our
own: images differ in theirs (registry:2, registry:3, Debian's).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress

import bcrypt

from trainyard.diagnosis import Rule, explain
from trainyard.errors import OutsideError, RequestError
from trainyard.registry import certificates
from trainyard.registry.certificates import KeyPair
from trainyard.registry.target import LABEL, Target
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container, NewContainer, NewFile
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import named_login
from trainyard.steps import YES, Answer, no

PORT = 5000
DATA = "/var/lib/registry"
HOME = "/etc/trainyard-registry"
CONFIG = f"{HOME}/config.yml"
HTPASSWD = f"{HOME}/htpasswd"
CA = f"{HOME}/ca.pem"
CERTIFICATE = f"{HOME}/server.pem"
KEY = f"{HOME}/server.key"
# The registry computes the hash for every request; a push makes dozens. Cost 8 takes about 15 ms.
BCRYPT_COST = 8
# bcrypt ignores what comes after, silently.
LONGEST_PASSWORD = 72
# A hash of what the container was made with. The password and the certificate are compared with what is inside.
SETTINGS_LABEL = "io.trainyard.registry.settings"
# Whether it then goes on running is another question.
STARTED = ("running", "restarting")
# Why Docker cannot start it.
START_RULES = (
    Rule(
        "cannot assign requested address",
        "{host} is not an address of {machine}",
        "registry.address must be one of the machine that Docker runs on.",
    ),
    Rule(
        "unable to start container process",
        "{image} cannot be run as a registry",
        "registry.image must be one like docker.io's registry:2, which is given its configuration file.",
    ),
)


def is_started(target: Target) -> Answer:
    """Say whether the container that the settings ask for was started."""
    container = target.container
    if container is None:
        return no("there is no container")
    difference = _difference(target, container)
    if difference:
        return no(difference)
    return YES if container.state in STARTED else no(f"it is {container.state}")


def start(target: Target) -> None:
    """Make the container that the settings ask for, or start it if that is all it lacks."""
    container = target.container
    made = None
    if container is None or _difference(target, container):
        files = _files(target)
        if container:
            remove(target)
        made = containers.create(target.engine, _desired(target))
        containers.put_files(target.engine, made, files)
    try:
        containers.start(target.engine, target.name)
    except OutsideError as error:
        if made:
            # What never ran is of no use, and only in the way of its name.
            with suppress(OutsideError):
                containers.remove(target.engine, made)
        words = {"host": target.host_port.host, "machine": target.engine.host, "image": target.registry.image}
        cause = explain(error.where or "", START_RULES, **words)
        raise (cause.to_error() if cause else error) from error


def remove(target: Target) -> None:
    """Stop it first: it may be in the middle of writing an upload."""
    container = target.container
    if container:
        containers.stop(target.engine, container.id)
        containers.remove(target.engine, container.id)


def _difference(target: Target, container: Container) -> str | None:
    """Say in what a container differs from the settings."""
    if container.state == "created":
        # Cut short before it had its files, or it could not be started.
        return "it was never started"
    if container.labels.get(SETTINGS_LABEL) != _settings_hash(target):
        return "it was made with other settings"
    login = _login(target)
    if login:
        htpasswd = containers.read_file(target.engine, container.id, HTPASSWD) or b""
        if not has_password(htpasswd, login.username, login.password):
            return "it was made with another password"
    if target.registry.insecure:
        return None
    certificate = containers.read_file(target.engine, container.id, CERTIFICATE)
    if certificate is None:
        return "it has no certificate"
    return certificates.expiry_problem(certificate, now=target.now())


def _files(target: Target) -> dict[str, NewFile]:
    login = _login(target)
    htpasswd = htpasswd_line(login.username, login.password) if login else None
    if target.registry.insecure:
        return files(server=None, ca=b"", htpasswd=htpasswd)
    ca = certificates.load_ca(target)
    server = certificates.make_server(ca, target.host_port.host, now=target.now())
    return files(server=server, ca=ca.certificate, htpasswd=htpasswd)


def _login(target: Target) -> Login | None:
    """Return the user of the cluster file; what `docker login` keeps is no wish for a password."""
    return named_login(target.registry, target.environ)


def _desired(target: Target) -> NewContainer:
    return NewContainer(
        name=target.name,
        image=target.registry.image,
        labels={LABEL: target.address, SETTINGS_LABEL: _settings_hash(target)},
        command=[CONFIG],
        ports={PORT: (target.bind_address, target.host_port.port)},
        volumes={target.name: DATA},
        restart="unless-stopped",
    )


def _settings_hash(target: Target) -> str:
    registry = target.registry
    settings = [registry.image, target.bind_address, registry.address, registry.insecure, registry.username]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def files(*, server: KeyPair | None, ca: bytes, htpasswd: bytes | None) -> dict[str, NewFile]:
    """Return the files that a registry starts with; keys and hashes can be read by root only."""
    found = {CONFIG: NewFile(config(tls=server is not None, login=htpasswd is not None), 0o600)}
    if server is not None:
        found |= {CERTIFICATE: NewFile(server.certificate), KEY: NewFile(server.key, 0o600), CA: NewFile(ca)}
    if htpasswd is not None:
        found[HTPASSWD] = NewFile(htpasswd, 0o600)
    return found


def config(*, tls: bool, login: bool) -> bytes:
    """Return the registry's configuration (distribution.github.io, "Configuring a registry"); JSON is YAML.

    What a push that broke has left is kept for a day: by default a week, on a disk that it may have filled.
    """
    http: dict[str, object] = {
        "addr": f":{PORT}",
        # Signs the state of uploads that are under way.
        "secret": secrets.token_hex(16),
        "headers": {"X-Content-Type-Options": ["nosniff"]},
    }
    if tls:
        http["tls"] = {"certificate": CERTIFICATE, "key": KEY, "minimumtls": "tls1.2"}
    document: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info", "fields": {"service": "registry"}},
        # No cache of what is there: it goes on to promise layers that garbage collection has removed.
        "storage": {
            "filesystem": {"rootdirectory": DATA},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": True, "age": "24h", "interval": "1h", "dryrun": False}},
        },
        "http": http,
        "health": {"storagedriver": {"enabled": True, "interval": "10s", "threshold": 3}},
    }
    if login:
        document["auth"] = {"htpasswd": {"realm": "trainyard", "path": HTPASSWD}}
    return json.dumps(document, indent=2).encode()


def check_password(username: str, password: str) -> None:
    """Raise RequestError for what bcrypt or the format of `htpasswd -B` cannot hold."""
    if ":" in username or "\n" in username:
        raise RequestError(f"registry.username {username!r} must not contain ':' or a line break")
    if len(password.encode()) > LONGEST_PASSWORD:
        raise RequestError(
            f"the registry's password is longer than the {LONGEST_PASSWORD} bytes that count",
            hint="Choose a shorter one.",
        )


def htpasswd_line(username: str, password: str) -> bytes:
    return f"{username}:".encode() + bcrypt.hashpw(password.encode(), bcrypt.gensalt(BCRYPT_COST)) + b"\n"


def has_password(htpasswd: bytes, username: str, password: str) -> bool:
    user, _, hashed = htpasswd.strip().partition(b":")
    try:
        return user == username.encode() and bcrypt.checkpw(password.encode(), hashed)
    except ValueError:
        return False
