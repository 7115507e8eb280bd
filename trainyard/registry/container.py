"""The container of a registry: made as its settings say, made anew, over the same images, when they differ.

Its configuration and secrets are put into it by us and kept nowhere else. The paths of configuration and data are our
own: images differ in theirs (registry:2, registry:3, Debian's).
"""

from __future__ import annotations

import hashlib
import json
import secrets

import bcrypt

from trainyard.registry import certificates
from trainyard.registry.target import LABEL, Target
from trainyard.seams.docker import containers, volumes
from trainyard.seams.docker.containers import Container
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
# bcrypt takes no more of a password.
LONGEST_PASSWORD = 72
# A hash of what the container was made with. The password and the certificate are compared with what is inside.
SETTINGS_LABEL = "io.trainyard.registry.settings"
# Whether it then goes on running is another question.
STARTED = ("running", "restarting")


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
    if container is None or _difference(target, container):
        content = files(target)
        if container:
            remove(target)
        volumes.create_volume(target.engine, target.name, labels={LABEL: target.address})
        made = containers.create(
            target.engine,
            target.name,
            image=target.registry.image,
            labels={LABEL: target.address, SETTINGS_LABEL: _settings_hash(target)},
            command=[CONFIG],
            ports={PORT: (target.bind_address, target.host_port.port)},
            volumes={target.name: DATA},
        )
        containers.put_files(target.engine, made, content)
    containers.start(target.engine, target.name)


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
    login = named_login(target.registry, target.environ)
    htpasswd = (containers.read_file(target.engine, container.id, HTPASSWD) or b"") if login else b""
    if login and not has_password(htpasswd, login.username, login.password):
        return "it was made with another password"
    if target.registry.insecure:
        return None
    certificate = containers.read_file(target.engine, container.id, CERTIFICATE)
    return certificates.expiry_problem(certificate, now=target.now()) if certificate else "it has no certificate"


def _settings_hash(target: Target) -> str:
    registry = target.registry
    settings = [registry.image, target.bind_address, registry.address, registry.insecure, registry.username]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def files(target: Target) -> dict[str, bytes]:
    """Return the files that the registry starts with."""
    # What `docker login` keeps is no wish for a password.
    login = named_login(target.registry, target.environ)
    tls = not target.registry.insecure
    made = {CONFIG: config(tls=tls, login=login is not None)}
    if login:
        made[HTPASSWD] = htpasswd_line(login.username, login.password)
    if tls:
        ca = certificates.load_ca(target)
        server = certificates.make_server(ca, target.host_port.host, now=target.now())
        made |= {CERTIFICATE: server.certificate, KEY: server.key, CA: ca.certificate}
    return made


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


def htpasswd_line(username: str, password: str) -> bytes:
    return f"{username}:".encode() + bcrypt.hashpw(_counted(password), bcrypt.gensalt(BCRYPT_COST)) + b"\n"


def has_password(htpasswd: bytes, username: str, password: str) -> bool:
    user, _, hashed = htpasswd.strip().partition(b":")
    return user == username.encode() and bcrypt.checkpw(_counted(password), hashed)


def _counted(password: str) -> bytes:
    return password.encode()[:LONGEST_PASSWORD]
