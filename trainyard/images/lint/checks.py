"""The checks of an image: how it starts, what image.yaml asks of it, its size, and what its history shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from trainyard.images.lint import ray_checks, secrets
from trainyard.images.lint.inspection import Finding, Inspection, failed, ok, untested
from trainyard.images.lint.probe import run_question
from trainyard.spec.docker import check_image
from trainyard.spec.units import format_size

# What a registry and the disks of nodes are expected to bear where image.yaml does not say.
MAX_SIZE = 40 * 1024**3
SHOWN_SECRETS = 3
_BUILD_WORDS = re.compile(r"^/bin/sh -c (?:#\(nop\)\s*)?|\s*# buildkit$")

# Meant for other machines, an image is no worse: it is the look at it that cannot be had here.
_OTHER_MACHINE = (
    "Meant for other machines, it can be pushed without being run here: invoke image.push --skip-lint. Install QEMU "
    "(qemu-user-static, binfmt) to run it here all the same, or build it for this machine: leave out --platform."
)


def reference(text: str) -> Finding:
    """Look at the name by which registries will know the image."""
    try:
        check_image(text)
    except ValueError:
        hint = "Name it in lower case, as in registry:5000/team/schola:1.2; only host and tag may have capitals."
        return failed("reference", f"{text} is a name that no registry takes", hint)
    return ok("reference", text)


def judge(inspection: Inspection) -> tuple[Finding, ...]:
    """Return the findings of all checks that apply; where one cause explains others, these are not tested."""
    shell = _no_shell(inspection)
    causes = {"": None, "shell": shell, "ray": shell or ray_checks.cause(inspection)}
    found = []
    for name, needs, look in CHECKS:
        cause = causes[needs]
        if name in ASKED and not any(getattr(inspection.lint, key) for key in ASKED[name]):
            continue
        if cause is None:
            found.append(look(inspection))
        else:
            found.append(cause if cause.check == name else untested(name, f"mend `{cause.check}` first"))
    return tuple(found)


def _no_shell(inspection: Inspection) -> Finding | None:
    refusal = inspection.probed.refusal
    if inspection.probed.began:
        return None
    if "exec format error" in refusal:
        detail = f"is for {inspection.image.platform}, which this engine cannot run: exec format error"
        return failed("platform", detail, _OTHER_MACHINE)
    hint = "Install bash: KubeRay and Ray's autoscaler start every node with /bin/bash."
    return failed("bash", f"no shell at all can be run: {refusal}", hint)


def _platform(inspection: Inspection) -> Finding:
    return ok("platform", inspection.image.platform)


def _entrypoint(inspection: Inspection) -> Finding:
    words = " ".join(inspection.image.entrypoint or ())
    if not words:
        return ok("entrypoint", "none: commands run as they are given")
    if inspection.probed.came_through:
        return ok("entrypoint", f"{words}: hands commands on")
    detail = f"ENTRYPOINT {words} swallows the command that it is given, such as `ray start`"
    return failed("entrypoint", detail, 'Reset it in the Dockerfile: ENTRYPOINT [], or let it end with: exec "$@"')


def _bash(inspection: Inspection) -> Finding:
    if inspection.probed.text("bash"):
        return ok("bash", "/bin/bash")
    return failed("bash", "there is no /bin/bash", "Install bash: KubeRay and Ray's autoscaler start nodes with it.")


def _user(inspection: Inspection) -> Finding:
    expected = inspection.file.user if inspection.file else "any"
    is_root = inspection.probed.text("uid") == "0"
    if expected == "non-root" and is_root:
        detail = "runs as root, and image.yaml says non-root: its programs refuse to run as root"
        return failed("user", detail, "Let the Dockerfile end with a USER that it made: RUN useradd ..., USER ...")
    if expected == "root" and not is_root:
        detail = f"runs as {inspection.user}, and image.yaml says root"
        return failed("user", detail, "Let the Dockerfile end with: USER root")
    return ok("user", inspection.user)


def _writable(inspection: Inspection) -> Finding:
    if inspection.probed.text("writable:/tmp"):
        return ok("writable", "/tmp")  # noqa: S108 - the image's, not ours
    detail = f"{inspection.user} cannot write to /tmp, where Ray keeps its sessions"
    return failed("writable", detail, "Give /tmp back its mode: RUN chmod 1777 /tmp")


def _wget(inspection: Inspection) -> Finding:
    version, program = inspection.ray_version, inspection.probed.text("wget")
    if program:
        return ok("wget", program)
    # KubeRay 1.6 probes Ray 2.53 and newer by HTTP (ray-project/kuberay#4448).
    by_http = [int(part) for part in re.findall(r"\d+", version)[:2]] >= [2, 53]
    if by_http and (inspection.file is None or not inspection.lint.wget):
        return ok("wget", f"none: KubeRay 1.6 and newer probes Ray {version} by HTTP, older ones cannot")
    hint = "Install wget, or say `wget: false` in image.yaml if only KubeRay 1.6 and newer runs it."
    detail = "there is no wget, with which KubeRay probes its nodes: it would end them"
    return failed("wget", detail, hint if by_http else "Install wget.")


def _of_ray(name: str) -> Callable[[Inspection], Finding]:
    return lambda inspection: ok(name, ray_checks.details(inspection)[name])


def _imports(inspection: Inspection) -> Finding:
    return _all_succeed(inspection, "imports", {f"import:{name}": name for name in inspection.lint.imports})


def _entry_point(inspection: Inspection) -> Finding:
    name = inspection.lint.entry_point
    return _all_succeed(inspection, "entry-point", {f"entry:{name}": f"{name}(--help)"})


def _runs(inspection: Inspection) -> Finding:
    commands = inspection.lint.runs
    return _all_succeed(inspection, "runs", {run_question(words): f"`{shlex.join(words)}`" for words in commands})


def _all_succeed(inspection: Inspection, check: str, named: dict[str, str]) -> Finding:
    """Look how the commands behind questions ended; `named` has the words for each question."""
    for question, name in named.items():
        ended = inspection.probed.answer(question)
        if ended is not None and ended.code == 0:
            continue
        output = ended.output if ended else "it ended Python"
        if "EOFError" in output or "EOF when reading" in output:
            detail = f"{name} waits for a key: {output}"
            return failed(check, detail, "Jobs have no keyboard: call the function that does not wait.")
        return failed(check, f"{name} fails as {inspection.user}: {output}", "Try it: docker run --rm -it IMAGE bash")
    return ok(check, ", ".join(named.values()))


def _files(inspection: Inspection) -> Finding:
    return _all_there(inspection, "files", "path", inspection.lint.must_have, "is not in the image")


def _programs(inspection: Inspection) -> Finding:
    # wget has a check of its own.
    names = [name for name in inspection.lint.programs if name != "wget"]
    return _all_there(inspection, "programs", "program", names, "is not on PATH")


def _all_there(inspection: Inspection, check: str, kind: str, names: Sequence[str], how: str) -> Finding:
    missing = [f"{name} {how}" for name in names if inspection.probed.answer(f"{kind}:{name}") is None]
    if missing:
        hint = "image.yaml says that the image needs it: add it in the Dockerfile."
        return failed(check, "; ".join(missing), hint)
    return ok(check, ", ".join(names))


def _search_paths(inspection: Inspection) -> Finding:
    """Look for directories such as those that NVIDIA's runtime fills."""
    lint, environ = inspection.lint, inspection.image.env
    expected = [("PATH", path) for path in lint.path_contains]
    expected += [("LD_LIBRARY_PATH", path) for path in lint.ld_library_path_contains]
    missing = [(name, path) for name, path in expected if path not in environ.get(name, "").split(":")]
    if not missing:
        return ok("search-paths", ", ".join(f"{path} in {name}" for name, path in expected))
    name, path = missing[0]
    detail = "; ".join(f"{name} does not list {path}" for name, path in missing)
    return failed("search-paths", detail, f"Add it in the Dockerfile: ENV {name}={path}:${name}")


def _environ(inspection: Inspection) -> Finding:
    expected, environ = inspection.lint.environ, inspection.image.env
    wrong = [
        f"{name} is {shlex.quote(environ[name]) if name in environ else 'not set'}, not {value!r}"
        for name, value in expected.items()
        if environ.get(name) != value
    ]
    if wrong:
        return failed("environ", "; ".join(wrong), "Set it in the Dockerfile: ENV NAME=VALUE")
    return ok("environ", ", ".join(expected))


def _size(inspection: Inspection) -> Finding:
    limit, size = inspection.lint.max_size or MAX_SIZE, inspection.image.size
    if size <= limit:
        return ok("size", f"{_rounded(size)} of at most {_rounded(limit)}")
    hint = "Remove what is not needed in the RUN that made it."
    if inspection.history:
        largest = max(inspection.history, key=lambda layer: layer.size)
        made_by = " ".join(_BUILD_WORDS.sub("", largest.created_by).split())[:100] or "its base"
        hint = f"Its largest layer takes {_rounded(largest.size)}: {made_by}"
    return failed("size", f"takes {_rounded(size)}, and at most {_rounded(limit)} are allowed", hint)


def _history(inspection: Inspection) -> Finding:
    """Look for secrets in environment variables, labels, and the commands that made the layers."""
    image, steps = inspection.image, inspection.history
    found = {secret: f"the variable {secret}" for secret in secrets.secrets_in_environment(image.env)}
    found |= {secret: f"the label {secret}" for secret in secrets.secrets_in_environment(image.labels)}
    for number, step in enumerate(steps, start=1):
        for secret in secrets.secrets_in_command(step.created_by):
            # What a variable or label still shows stands in the history too, where it was set.
            found.setdefault(secret, f"{secret} in step {number} of its history")
    if not found:
        return ok("history", f"no secret in {len(steps)} steps")
    more = len(found) - SHOWN_SECRETS
    shown = ", ".join([*found.values()][:SHOWN_SECRETS]) + (f" and {more} more" if more > 0 else "")
    hint = "Change the secret, then pass it to the build as one: RUN --mount=type=secret,id=..."
    return failed("history", f"shows secrets: {shown}", hint)


def _rounded(size: int) -> str:
    """Return a size in the units of people; format_size keeps every byte."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}".replace(".0 ", " ")
    return format_size(size)


# Name, what it needs (a shell that runs in the image, a Ray that runs jobs), and how it is judged; in printed order.
CHECKS: tuple[tuple[str, str, Callable[[Inspection], Finding]], ...] = (
    ("platform", "shell", _platform),
    ("entrypoint", "shell", _entrypoint),
    ("bash", "shell", _bash),
    ("user", "shell", _user),
    ("writable", "shell", _writable),
    ("wget", "shell", _wget),
    ("interpreter", "ray", _of_ray("interpreter")),
    ("ray", "ray", ray_checks.ray),
    ("python", "ray", _of_ray("python")),
    ("import", "ray", _of_ray("import")),
    ("imports", "ray", _imports),
    ("entry-point", "ray", _entry_point),
    ("runs", "shell", _runs),
    ("files", "shell", _files),
    ("programs", "shell", _programs),
    ("search-paths", "", _search_paths),
    ("environ", "", _environ),
    ("size", "", _size),
    ("history", "", _history),
)
# Checks of what image.yaml asks, by its keys.
ASKED = {
    "interpreter": ("ray_interpreter",),
    "imports": ("imports",),
    "entry-point": ("entry_point",),
    "runs": ("runs",),
    "files": ("must_have",),
    "programs": ("programs",),
    "search-paths": ("path_contains", "ld_library_path_contains"),
    "environ": ("environ",),
}
