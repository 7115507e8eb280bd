"""The checks of an image: start, Ray, image.yaml, size, and secrets."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trainyard.images.lint import secrets
from trainyard.images.lint.probe import Inspection, questions_of
from trainyard.results.formats import size as shown_size
from trainyard.seams.docker.images import MadeBy
from trainyard.spec.docker import check_image
from trainyard.spec.units import GIB
from trainyard.versions import RAY

# The size limit in bytes of an image without `max_size` in image.yaml.
MAX_SIZE = 40 * GIB
_OTHER_MACHINE = (
    "If it is for other machines, push it without this check: trainyard image.push --skip-lint. "
    "To run it here, install QEMU (qemu-user-static, binfmt). To build it for this machine, leave "
    "out --platform."
)
_PATH_HINT = "Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH"


@dataclass(frozen=True)
class Finding:
    """One check's result; `skipped` if a failed check made it impossible."""

    check: str
    ok: bool
    detail: str
    hint: str = ""
    skipped: bool = False


class Wrong(NamedTuple):
    """The problem that a check found, and a hint."""

    detail: str
    hint: str


# The result of a check's function: a detail if the check passes, else the problem.
Verdict = str | Wrong


def reference(text: str) -> Finding:
    """Check the image's name by the rules of registries; ask none."""
    try:
        check_image(text)
    except ValueError:
        hint = (
            "Name it in lower case, as in registry:5000/team/schola:1.2; only host and tag "
            "may have capitals."
        )
        return Finding("reference", False, f"no registry accepts the name {text}", hint)
    return Finding("reference", True, text)


def judge(inspection: Inspection) -> tuple[Finding, ...]:
    """Return the findings of all checks that apply.

    Checks that would fail only because of another failure are skipped.
    """
    runs_nothing = _runs_nothing(inspection)
    causes = {"": None, "shell": runs_nothing, "ray": runs_nothing or _no_jobs(inspection)}
    findings = []

    for name, needs, look, keys in CHECKS:
        cause = causes[needs]
        if keys and not any(getattr(inspection.lint, key) for key in keys):
            continue

        if cause is None:
            found = look(inspection)
            findings.append(
                Finding(name, False, *found)
                if isinstance(found, Wrong)
                else Finding(name, True, found)
            )
        elif cause.check == name:
            findings.append(cause)
        else:
            findings.append(Finding(name, True, f"repair `{cause.check}` first", skipped=True))

    return tuple(findings)


def _runs_nothing(inspection: Inspection) -> Finding | None:
    """Return why the probe did not run: platform, entry point or shell."""
    probed = inspection.probed
    words = " ".join(inspection.image.entrypoint or ())
    if probed.facts:
        return None
    if "exec format error" in probed.refusal:
        detail = (
            f"is for {inspection.image.platform}, which this engine cannot run: exec format error"
        )
        return Finding("platform", False, detail, _OTHER_MACHINE)
    if words:
        return Finding("entrypoint", False, *_swallows(words, probed.refusal))
    hint = "Install bash: KubeRay and Ray's autoscaler start every node with /bin/bash."
    return Finding("bash", False, f"no shell can run: {probed.refusal}", hint)


def _swallows(words: str, said: str) -> Wrong:
    detail = (
        f"ENTRYPOINT {words} swallows the command that it is given, such as `ray start`: {said}"
    )
    return Wrong(detail, 'Reset it in the Dockerfile: ENTRYPOINT [], or let it end with: exec "$@"')


def _no_jobs(inspection: Inspection) -> Finding | None:
    """Return the cause if Ray's Python cannot run jobs, else None.

    All checks that need Ray depend on this.
    """
    probed = inspection.probed
    user = inspection.user
    lint = inspection.lint
    program = probed.text("ray.program")
    first = probed.text("ray.first_line")

    if not program:
        hint = f"Install ray[default]=={RAY}. {_PATH_HINT}"
        return Finding("ray", False, "there is no ray on PATH", hint)

    if lint.ray_interpreter and first.removeprefix("#!").split()[:1] != [lint.ray_interpreter]:
        detail = f"{program} starts with {first or 'no #! line'}, not #!{lint.ray_interpreter}"
        hint = (
            f"Write it again after the installation: RUN sed -i '1c #!{lint.ray_interpreter}' "
            f"{program}"
        )
        return Finding("interpreter", False, detail, hint)

    if not probed.text("python.program"):
        return Finding("python", False, "there is no python on PATH", _PATH_HINT)

    if lint.python and not probed.text("asked.prefix"):
        detail = (
            f"{lint.python} does not run: "
            f"{probed.failure(f'python:{lint.python}') or 'it printed nothing'}"
        )

        return Finding(
            "python",
            False,
            detail,
            "`lint.python` in image.yaml says that Ray and the jobs use this Python",
        )

    prefixes = {"python": probed.text("python.prefix"), "ray": probed.text("ray.python")}
    prefixes |= {lint.python: probed.text("asked.prefix")} if lint.python else {}
    if len(set(prefixes.values())) > 1 and all(prefixes.values()):
        listed = ", ".join(f"{name} belongs to {prefix}" for name, prefix in prefixes.items())
        return Finding("python", False, f"python on PATH is not Ray's: {listed}", _PATH_HINT)
    if reason := probed.failure("python.ended"):
        detail = f'`python -c "import ray"` fails as {user}: {reason}'
        hint = f"{user} must be able to read what root installed; WORKDIR must have no ray/."
        return Finding("import", False, detail, hint)

    return None


def _entrypoint(inspection: Inspection) -> Verdict:
    words = " ".join(inspection.image.entrypoint or ())
    if inspection.probed.swallowed:
        return _swallows(words, inspection.probed.swallowed)
    if words:
        return f"{words}: passes commands on"
    return "none: commands run as they are given"


def _interpreter(inspection: Inspection) -> str:
    return (
        f"{inspection.probed.text('ray.program')} starts with "
        f"{inspection.probed.text('ray.first_line')}"
    )


def _python(inspection: Inspection) -> str:
    return (
        f"{inspection.probed.text('python.program')} "
        f"({inspection.probed.text('python.prefix') or 'unknown'})"
    )


def _import(inspection: Inspection) -> str:
    return f"Ray {inspection.probed.text('python.ray')} as {inspection.user}"


def _bash(inspection: Inspection) -> Verdict:
    if inspection.probed.text("bash"):
        return "/bin/bash"
    return Wrong(
        "there is no /bin/bash", "Install bash: KubeRay and Ray's autoscaler start nodes with it."
    )


def _user(inspection: Inspection) -> Verdict:
    expected = inspection.file.user
    is_root = inspection.probed.text("uid") == "0"
    if expected == "non-root" and is_root:
        detail = "runs as root, and image.yaml says non-root: its programs refuse to run as root"
        return Wrong(
            detail, "Let the Dockerfile end with a USER that it creates: RUN useradd ..., USER ..."
        )
    if expected == "root" and not is_root:
        detail = f"runs as {inspection.user}, and image.yaml says root"
        return Wrong(detail, "Let the Dockerfile end with: USER root")
    if is_root or inspection.image.user.partition(":")[0].isdigit():
        return inspection.user

    uid = inspection.probed.text("uid")
    note = (
        f"`restricted: true` on Kubernetes needs a numeric user: USER {uid}, or "
        "kuberay.security.run_as_user"
    )

    return f"{inspection.user}; {note}"


def _writable(inspection: Inspection) -> Verdict:
    if inspection.probed.text("writable:/tmp"):
        return "/tmp"  # noqa: S108 - the image's, not ours
    detail = f"{inspection.user} cannot write to /tmp, where Ray keeps its sessions"
    return Wrong(detail, "Give /tmp back its mode: RUN chmod 1777 /tmp")


def _wget(inspection: Inspection) -> Verdict:
    if program := inspection.probed.text("wget"):
        return program
    if not inspection.lint.wget:
        # KubeRay 1.6 probes Ray 2.53 and newer by HTTP (ray-project/kuberay#4448).
        return "none: KubeRay 1.6 and newer probes by HTTP, older versions cannot probe"
    hint = "Install wget, or say `wget: false` in image.yaml if only KubeRay 1.6 and newer runs it."
    return Wrong("there is no wget: KubeRay probes nodes with it, and would end them", hint)


def _ray(inspection: Inspection) -> Verdict:
    version = inspection.probed.text("ray.version")
    reason = inspection.probed.failure("ray.ended")
    if reason or not version:
        detail = f"`ray --version` fails as {inspection.user}: {reason or 'it printed no version'}"
        return Wrong(detail, "Try it: docker run --rm -it IMAGE ray --version")
    if version != RAY:
        detail = f"has Ray {version}, and clusters run {RAY}"
        return Wrong(detail, f"Install ray[default]=={RAY}: all nodes need the same Ray.")
    return version


def _answers(kind: str, *, missing: str = "gave no answer") -> Callable[[Inspection], Verdict]:
    """Return a check of the questions of one kind, such as modules or files.

    A question without an answer is reported as its name and `missing`.
    """

    def problem(inspection: Inspection, question: str) -> str:
        name = question.removeprefix(f"{kind}:")
        reason = inspection.probed.failure(question)
        if question not in inspection.probed.facts:
            return f"{name} {missing}"
        return reason and f"{name} fails as {inspection.user}: {reason}"

    def look(inspection: Inspection) -> Verdict:
        questions = []
        for question in questions_of(inspection.lint):
            if question.startswith(f"{kind}:"):
                questions.append(question)

        problems = [text for question in questions if (text := problem(inspection, question))]
        if problems:
            return Wrong(
                "; ".join(problems),
                "image.yaml asks for it. Try it: docker run --rm -it IMAGE bash",
            )

        return ", ".join(question.removeprefix(f"{kind}:") for question in questions)

    return look


def _search_paths(inspection: Inspection) -> Verdict:
    lint = inspection.lint
    environ = inspection.image.env
    expected = [("PATH", path) for path in lint.path_contains]
    expected += [("LD_LIBRARY_PATH", path) for path in lint.ld_library_path_contains]
    missing = []
    for name, path in expected:
        if path not in environ.get(name, "").split(":"):
            missing.append((name, path))
    if not missing:
        return ", ".join(f"{path} in {name}" for name, path in expected)
    name, path = missing[0]
    detail = "; ".join(f"{name} does not list {path}" for name, path in missing)
    return Wrong(detail, f"Add it in the Dockerfile: ENV {name}={path}:${name}")


def _environ(inspection: Inspection) -> Verdict:
    expected = inspection.lint.environ
    environ = inspection.image.env
    wrong = []
    for name, value in expected.items():
        if environ.get(name) != value:
            wrong.append(
                f"{name} is {shlex.quote(environ[name]) if name in environ else 'not set'}, not "
                f"{value!r}"
            )
    if wrong:
        return Wrong("; ".join(wrong), "Set it in the Dockerfile: ENV NAME=VALUE")
    return ", ".join(expected)


def _size(inspection: Inspection) -> Verdict:
    limit = inspection.lint.max_size or MAX_SIZE
    size = inspection.image.size
    layer = max(inspection.history, key=lambda made: made.size, default=MadeBy(""))
    if layer.size:
        largest = (
            f"; its largest layer: {shown_size(layer.size)} by {secrets.masked(layer.instruction)}"
        )
    else:
        largest = ""
    if size <= limit:
        return f"{shown_size(size)} of at most {shown_size(limit)}{largest}"
    detail = f"takes {shown_size(size)}, and at most {shown_size(limit)} are allowed{largest}"
    hint = "Delete unneeded files in the same RUN that made them; sizes: docker history IMAGE"
    return Wrong(detail, hint)


def _history(inspection: Inspection) -> Verdict:
    """Find secrets in variables, labels and commands, and login files."""
    image = inspection.image
    steps = inspection.history
    places = {
        secret: f"the variable {secret}" for secret in secrets.secrets_in_environment(image.env)
    }
    places |= {
        secret: f"the label {secret}" for secret in secrets.secrets_in_environment(image.labels)
    }

    for step in steps:
        for secret in secrets.secrets_in_command(step.instruction):
            # The history also has the variables and labels, which are listed once.
            places.setdefault(secret, f"{secret} in `{secrets.masked(step.instruction)}`")

    files = [
        key.removeprefix("secret:") for key in inspection.probed.facts if key.startswith("secret:")
    ]
    places |= {file: f"the file {file}" for file in files}
    if not places:
        return f"no secret in {len(steps)} steps"

    hint = "Change the secret, then pass it as a build secret: RUN --mount=type=secret,id=..."
    return Wrong(f"shows secrets: {', '.join(places.values())}", hint)


# The checks in printed order. Each has a name, a condition, a function, and keys of image.yaml. The
# condition "shell" means that a shell runs in the image, "ray" that Ray's Python runs jobs. A check
# with keys applies only to images that set at least one of them.
CHECKS: tuple[tuple[str, str, Callable[[Inspection], Verdict], tuple[str, ...]], ...] = (
    ("platform", "shell", lambda inspection: inspection.image.platform, ()),
    ("entrypoint", "shell", _entrypoint, ()),
    ("bash", "shell", _bash, ()),
    ("user", "shell", _user, ()),
    ("writable", "shell", _writable, ()),
    ("wget", "shell", _wget, ()),
    ("interpreter", "ray", _interpreter, ("ray_interpreter",)),
    ("ray", "ray", _ray, ()),
    ("python", "ray", _python, ()),
    ("import", "ray", _import, ()),
    ("imports", "ray", _answers("import"), ("imports",)),
    ("entry-point", "ray", _answers("entry"), ("entry_point",)),
    ("runs", "shell", _answers("run"), ("runs",)),
    ("files", "shell", _answers("path", missing="is not in the image"), ("must_have",)),
    ("programs", "shell", _answers("program", missing="is not on PATH"), ("programs",)),
    ("search-paths", "", _search_paths, ("path_contains", "ld_library_path_contains")),
    ("environ", "", _environ, ("environ",)),
    ("size", "", _size, ()),
    ("history", "", _history, ()),
)
