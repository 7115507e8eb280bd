"""Paths of users' files, of shipped files, and of records about clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import PrerequisiteError, Problem, RequestError
from trainyard.wording import did_you_mean

DEFAULT_CLUSTER = "local"
# The wheel's files that are no Python modules (hatch_build.py); a checkout has none.
PAYLOAD = Path(__file__).resolve().parent / "payload"


@dataclass(frozen=True)
class Here:
    """The environment variables, and the directory for relative paths."""

    environ: Mapping[str, str]
    directory: Path

    @property
    def results(self) -> Path:
        return results_home(self.environ, directory=self.directory)


def shipped(directory: str) -> Path:
    """Return a directory that Trainyard ships, from its wheel or checkout."""
    in_wheel = PAYLOAD / directory
    if in_wheel.is_dir():
        return in_wheel
    return PAYLOAD.parents[1] / directory


def shown(path: Path) -> str:
    working = Path.cwd()
    if path.is_relative_to(working) and path != working:
        return str(path.relative_to(working))
    return str(path)


def cluster_file(
    asked: str | None, environ: Mapping[str, str], *, directory: Path, may_be_sample: bool = False
) -> Path:
    """Return the cluster file that `-f` names: a path, or a name in clusters/.

    The user's own files come before the samples that Trainyard ships. Without
    `-f` and $TRAINYARD_CLUSTER, the file is the user's clusters/local.yaml.
    With `may_be_sample`, for commands that make no cluster, the sample
    local.yaml replaces a missing one. Raises RequestError if there is no such
    file.
    """
    named = asked or environ.get("TRAINYARD_CLUSTER")
    if (
        not named
        and not may_be_sample
        and not (directory / "clusters" / f"{DEFAULT_CLUSTER}.yaml").exists()
    ):
        raise _no_cluster_file(directory)

    name = named or DEFAULT_CLUSTER
    if "/" in name or name.endswith((".yaml", ".yml", ".")):
        candidates = [
            directory / name,
            directory / f"{name}.yaml",
            shipped("clusters") / name.removeprefix("clusters/"),
        ]
    else:
        folders = (directory / "clusters", shipped("clusters"))
        candidates = [folder / f"{name}.yaml" for folder in folders]

    for path in candidates:
        if path.exists():
            return path

    known = cluster_names(directory)
    listed = listed_clusters(directory)
    flag = "-f" if asked else "TRAINYARD_CLUSTER"
    raise _no_such(
        "cluster file", name, known=known, listed=listed, flag=flag, hint=_new_cluster(name, known)
    )


def job_directory(asked: str, *, directory: Path) -> Path:
    """Return the job directory: a path, or a name under jobs/.

    The user's own jobs come before those that Trainyard ships. Raises
    RequestError if there is no such directory.
    """
    candidates = [directory / asked]
    if asked.startswith("jobs/") or "/" not in asked:
        name = asked.removeprefix("jobs/").rstrip("/")
        candidates += [directory / "jobs" / name, shipped("jobs") / name]
    for path in candidates:
        if path.is_dir():
            return path
    known = job_names(directory)
    listed = _own_jobs(directory) or known
    if (directory / asked).is_file():
        raise _no_job(directory / asked, asked)
    raise _no_such("job directory", asked, known=known, listed=listed, flag="JOB_DIR", hint=None)


def _no_job(file: Path, asked: str) -> RequestError:
    from trainyard.spec import foreign

    kind = foreign.kind_of(foreign.documents_of(file))
    if kind is not None and not kind.ours:
        return RequestError(f"{asked} is {kind.name}, not a job directory", hint=kind.remedy)
    hint = "A job is a directory with a job.yaml, which says what is run: docs/jobs.md."
    if (file.parent / "job.yaml").exists():
        hint = f"JOB_DIR is its directory: {Path(asked).parent}"
    return RequestError(f"no such job directory: {asked} is a file", hint=hint)


def cluster_names(directory: Path) -> tuple[str, ...]:
    folders = (directory / "clusters", shipped("clusters"))
    names: set[str] = set()
    for folder in folders:
        names.update(path.stem for path in folder.glob("*.yaml"))
    return tuple(sorted(names))


def listed_clusters(directory: Path) -> tuple[str, ...]:
    own = sorted(path.stem for path in (directory / "clusters").glob("*.yaml"))
    return tuple(own) or cluster_names(directory)


def job_names(directory: Path) -> tuple[str, ...]:
    return _parents("jobs", "job.yaml", directory)


def image_names(directory: Path) -> tuple[str, ...]:
    return _parents("images", "image.yaml", directory)


def example_job(directory: Path) -> str:
    own = _own_jobs(directory)
    return f"jobs/{own[0] if own else 'cartpole'}"


def _own_jobs(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in directory.glob("jobs/*/job.yaml")))


def state_home(environ: Mapping[str, str]) -> Path:
    """Return XDG's directory for clusters' tokens, keys and records."""
    return _home(environ, "XDG_STATE_HOME", ".local/state")


def not_writable(
    directory: Path, error: OSError, *, variable: str = "XDG_STATE_HOME"
) -> PrerequisiteError:
    """Return the error for a directory that this user may not use.

    The hint is to set the environment variable `variable` to another directory
    or, after a PermissionError, to change the directory's owner.
    """
    elsewhere = f"choose another place: export {variable}=DIR"
    hint = elsewhere[0].upper() + elsewhere[1:]
    if isinstance(error, PermissionError):
        back = f'sudo chown -R "$USER" {_ours(directory)}'
        hint = (
            f"Did an earlier command run as root? Take the directory back: {back}; or {elsewhere}"
        )
    return PrerequisiteError(
        f"this user may not use {directory}: {error.strerror or error}", hint=hint
    )


def cache_home(environ: Mapping[str, str]) -> Path:
    """Return XDG's directory for files that can be made again."""
    return _home(environ, "XDG_CACHE_HOME", ".cache")


def cluster_state(name: str, environ: Mapping[str, str]) -> Path:
    """Return a cluster's record directory, which `cluster.down` removes."""
    return state_home(environ) / "clusters" / name


def results_home(environ: Mapping[str, str], *, directory: Path) -> Path:
    return directory / (environ.get("TRAINYARD_RESULTS") or "results")


def _home(environ: Mapping[str, str], variable: str, default: str) -> Path:
    base = environ.get(variable) or Path(environ.get("HOME", "~")).expanduser() / default
    return Path(base) / "trainyard"


def _ours(directory: Path) -> Path:
    for parent in (directory, *directory.parents):
        if parent.name == "trainyard":
            return parent
    return directory


def _parents(kind: str, file: str, directory: Path) -> tuple[str, ...]:
    folders = (directory / kind, shipped(kind))
    names: set[str] = set()
    for folder in folders:
        names.update(path.parent.name for path in folder.glob(f"*/{file}"))
    return tuple(sorted(names))


def _no_cluster_file(directory: Path) -> RequestError:
    own = sorted(path.stem for path in (directory / "clusters").glob("*.yaml"))
    if own:
        hint = f"Name one: {', '.join(f'-f {name}' for name in own)}"
    else:
        hint = (
            f"trainyard init makes a project here; -f {DEFAULT_CLUSTER} takes the sample that "
            "Trainyard ships."
        )
    return RequestError("no cluster file here", where=f"clusters/{DEFAULT_CLUSTER}.yaml", hint=hint)


def _new_cluster(name: str, known: tuple[str, ...]) -> str | None:
    """Return a hint to make the cluster file; None for a path or a typo."""
    if not name.isalnum() or did_you_mean(name, known):
        return None
    return f"Make it: trainyard cluster.new {name}"


def _no_such(
    kind: str,
    name: str,
    *,
    known: tuple[str, ...],
    listed: tuple[str, ...],
    flag: str,
    hint: str | None,
) -> RequestError:
    meant = did_you_mean(name, known)
    what = f"{name!r} is neither a path nor one of: {', '.join(listed) or 'none'}{meant}"
    return RequestError(f"no such {kind}: {name}", problems=(Problem(flag, what),), hint=hint)
