"""The steps that make this host's Docker pull from a registry, and prove that it does."""

from __future__ import annotations

from pathlib import Path

from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.registry import daemon_json, settings
from trainyard.registry.target import Target
from trainyard.seams.docker import daemon as docker_daemon
from trainyard.seams.docker import images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.daemon import Daemon
from trainyard.seams.registry.errors import CertificateError
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, StepResult, no, plan, run

# Docker takes every *.crt of the registry's directory; this name leaves a ca.crt of the user's alone.
CA_NAME = "trainyard-ca.crt"
# An image of a few bytes: it proves the way, not the image.
PROBE = "trainyard/probe:1"
RELOAD_SECONDS = 15.0
AS_ROOT = 'Repeat as root: sudo -E env "PATH=$PATH" "HOME=$HOME" invoke registry.trust'


def trust(target: Target, progress: Progress) -> list[StepResult]:
    """Make Docker trust the registry; safe to repeat."""
    with target.alone(progress):
        return run(trust_steps(target), progress)


def plan_trust(target: Target) -> list[PlannedStep]:
    """Say what `trust` would change; change nothing."""
    return plan(trust_steps(target))


def trust_steps(target: Target) -> list[Step]:
    """Return the steps. Raises RequestError or PrerequisiteError where it has to be done in another way."""
    steps = _plain_steps(target) if target.registry.insecure else _tls_steps(target)
    pulled: list[str] = []
    return [
        *steps,
        Step(
            "A pull proves it",
            lambda: YES if pulled else no("not tried yet"),
            lambda: pulled.append(_pull(target)),
            after=steps[-1].title if steps else None,
        ),
    ]


def is_let_in(target: Target) -> bool:
    """Ask whether Docker speaks to the registry as it is now: by TLS with a certificate that it trusts, or plainly."""
    try:
        docker_push.registry_digest(target.engine, _probe(target), login=target.login)
    except CertificateError:
        return False
    return True


def _plain_steps(target: Target) -> list[Step]:
    if is_let_in(target):
        return [Step(f"Docker accepts plain HTTP from {target.address}", lambda: YES, lambda: None)]
    daemon = _daemon(target)
    daemon_json.refuse_flag(daemon, target.address)
    path = daemon.settings
    # Read now, so that a file that Docker cannot read is refused before anything else happens.
    daemon_json.has(path, target.address)
    backup = daemon_json.backup_of(path, now=target.now())
    written = f"Add {target.address} to {path}" + (f", as it was: {backup.name}" if path.exists() else "")
    return [
        Step(
            written,
            lambda: YES if daemon_json.has(path, target.address) else no("it is not there"),
            lambda: daemon_json.add(path, target.address, backup=backup, hint=AS_ROOT),
        ),
        Step(
            "Docker reads its settings again, without a restart",
            lambda: YES if is_let_in(target) else no("not yet; it does after: sudo systemctl restart docker"),
            lambda: docker_daemon.reload(daemon),
            deadline=RELOAD_SECONDS,
            after=written,
        ),
    ]


def _tls_steps(target: Target) -> list[Step]:
    ca = settings.ca_file(target.registry, target.environ)
    if ca is None or (docker_daemon.find(target.engine) is None and is_let_in(target)):
        # A certificate of a public CA needs nothing, and the files of an engine elsewhere are not ours to write.
        return []
    try:
        content = ca.read_bytes()
    except OSError as error:
        raise PrerequisiteError(
            f"registry.ca_file cannot be read: {error.strerror}",
            where=str(ca),
            hint="It names a copy of the CA that registry.up made: registry.status says where that is.",
        ) from error
    path = _daemon(target).certificates / target.address / CA_NAME
    return [
        Step(
            f"Put its CA at {path}",
            lambda: _has_content(path, content),
            lambda: daemon_json.write_for_all(path, content, hint=AS_ROOT),
        )
    ]


def _has_content(path: Path, content: bytes) -> Answer:
    try:
        return YES if path.read_bytes() == content else no("another CA is there")
    except OSError as error:
        return no(f"it is not there: {error.strerror}")


def _daemon(target: Target) -> Daemon:
    """Return the daemon whose settings count. Raises an error that says what to do where they are not ours."""
    engine = target.engine
    if not engine.is_here:
        raise RequestError(
            f"the Docker that is used here runs on {engine.host}: registry.trust changes the host it runs on",
            where=engine.address,
            hint=f"Run it there: ssh {engine.host}, then invoke registry.trust",
        )
    found = docker_daemon.find(engine)
    if found:
        return found
    by_hand = f"{settings.ca_file(target.registry, target.environ)} as /etc/docker/certs.d/{target.address}/ca.crt "
    by_hand += "(Docker Desktop: below ~/.docker)"
    if target.registry.insecure:
        by_hand = f'"{target.address}" in "insecure-registries" of its daemon.json (Settings -> Docker Engine)'
    raise PrerequisiteError(
        "no dockerd of this machine answers on this socket: it is Docker Desktop's, or runs in a virtual machine or a "
        "container",
        where=engine.address,
        hint=f"Name the registry there: {by_hand}; restart it, then repeat this command: its pull proves it.",
    )


def _probe(target: Target) -> str:
    return f"{target.address}/{target.registry.repository(PROBE)}"


def _pull(target: Target) -> str:
    """Send an image of a few bytes there if it lacks it, fetch it, and remove it again; return its id."""
    reference, login = _probe(target), target.login
    try:
        if docker_push.registry_digest(target.engine, reference, login=login) is None:
            images.make_tiny(target.engine, reference)
            docker_push.push(target.engine, reference, login=login)
            images.remove(target.engine, reference)
        images.pull(target.engine, reference, auth=login.for_engine(target.address) if login else None)
        found = images.inspect(target.engine, reference)
        if found is None:
            raise OutsideError(f"Docker says that it pulled {reference}, and does not have it")
        return found.id
    except CertificateError as error:
        if target.registry.insecure or settings.ca_file(target.registry, target.environ):
            raise
        raise PrerequisiteError(
            f"the certificate of registry {target.address} is of a CA that Docker does not know, and nor do we",
            where=error.where,
            hint="Name a copy of its CA as registry.ca_file; registry.up left it on the machine that it ran on.",
        ) from error
    finally:
        images.remove(target.engine, reference)
