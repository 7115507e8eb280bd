"""Checks of Ray in an image. Each cause is named once: what follows from it is not tested."""

from __future__ import annotations

from trainyard.images.lint.report import Finding, failed, ok, untested
from trainyard.images.lint.seen import Seen

_PATH_HINT = "Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH"


def interpreter(seen: Seen) -> Finding | None:
    """Look at the first line of `ray`."""
    wanted = seen.lint.ray_interpreter
    program = seen.probed.text("ray.program")
    if wanted is None:
        return None
    if not program:
        return untested("interpreter", "there is no ray on PATH")
    first = seen.probed.text("ray.first_line")
    if not seen.wrong_interpreter:
        return ok("interpreter", f"{program} starts with {first}")
    detail = f"{program} starts with {first or 'no #! line'}, not #!{wanted}"
    return failed("interpreter", detail, f"Write it anew after the installation: RUN sed -i '1c #!{wanted}' {program}")


def ray(seen: Seen) -> Finding:
    """Look whether `ray --version` is what the cluster runs."""
    ended = seen.probed.ended("ray.ended")
    if not seen.runs_ray or ended is None:
        return failed("ray", "there is no ray on PATH", f"Install ray[default]=={seen.ray_version}. {_PATH_HINT}")
    version = seen.probed.text("ray.version")
    if ended.code != 0 or not version:
        if seen.wrong_interpreter:
            return untested("ray", "ray starts with the wrong interpreter")
        if not seen.imports_ray and seen.same_python is not False:
            return untested("ray", "import ray fails")
        detail = f"`ray --version` fails as {seen.user}: {ended.said or f'exit code {ended.code}'}"
        return failed("ray", detail, "Try it: docker run --rm -it IMAGE ray --version")
    if version != seen.ray_version:
        detail = f"has Ray {version}, and clusters run {seen.ray_version}"
        return failed("ray", detail, f"Install ray[default]=={seen.ray_version}: nodes of two versions do not talk.")
    return ok("ray", version)


def python(seen: Seen) -> Finding:
    """Look whether the Python on PATH, which runs every job's `python`, is Ray's."""
    program = seen.probed.text("python.program")
    if not seen.runs_ray:
        return untested("python", "there is no ray on PATH to compare it with")
    if not program:
        return failed("python", "there is no python on PATH", _PATH_HINT)
    if seen.same_python is False and seen.wrong_interpreter:
        return untested("python", "ray starts with the wrong interpreter")
    if seen.same_python is False:
        return failed("python", f"python on PATH is not Ray's: {_pythons(seen)}", _PATH_HINT)
    if seen.same_python is None and seen.lint.python and not seen.probed.text("asked.prefix"):
        ended = seen.probed.answer(f"python:{seen.lint.python}")
        return failed(
            "python",
            f"{seen.lint.python} does not run: {ended.said if ended else 'it said nothing'}",
            "image.yaml names it as the Python of Ray and the jobs: lint.python",
        )
    return ok("python", f"{program} ({seen.probed.text('python.prefix') or 'unknown'})")


def imports_ray(seen: Seen) -> Finding:
    """Look whether jobs can import Ray as the image's user."""
    ended = seen.probed.ended("python.ended")
    if not seen.runs_ray:
        return untested("import", "there is no ray on PATH")
    if not seen.probed.text("python.program") or ended is None:
        return untested("import", "there is no python on PATH")
    if seen.imports_ray:
        return ok("import", f"Ray {seen.probed.text('python.ray')} as {seen.user}")
    if seen.same_python is False:
        return untested("import", "python on PATH is not Ray's")
    detail = f'`python -c "import ray"` fails as {seen.user}: {ended.said or f"exit code {ended.code}"}'
    return failed("import", detail, f"What was installed by root must be readable by {seen.user}; WORKDIR has no ray/.")


def imports(seen: Seen) -> Finding | None:
    """Look whether the modules that image.yaml names can be imported."""
    return _all_succeed(seen, "imports", {f"import:{name}": name for name in seen.lint.imports})


def entry_point(seen: Seen) -> Finding | None:
    """Look whether what jobs start ends by itself: nobody is there to press a key."""
    asked = {f"entry:{one}": f"{one}(--help)" for one in (seen.lint.entry_point,) if one}
    return _all_succeed(seen, "entry-point", asked)


def _all_succeed(seen: Seen, check: str, asked: dict[str, str]) -> Finding | None:
    if not asked:
        return None
    if not seen.imports_ray or seen.same_python is False:
        return untested(check, "Ray's Python is not there")
    return commands_succeed(seen, check, asked)


def commands_succeed(seen: Seen, check: str, asked: dict[str, str]) -> Finding:
    """Look how the commands behind questions ended; `asked` names them for people."""
    for question, name in asked.items():
        ended = seen.probed.answer(question)
        said = ended.said if ended else "it ended Python"
        if ended is not None and ended.code == 0:
            continue
        if "EOFError" in said or "EOF when reading" in said:
            detail = f"{name} waits for a key: {said}"
            return failed(check, detail, "Jobs have no keyboard: call the function that does not wait.")
        return failed(check, f"{name} fails as {seen.user}: {said}", "Try it: docker run --rm -it IMAGE bash")
    return ok(check, ", ".join(asked.values()))


def _pythons(seen: Seen) -> str:
    of_ray = seen.probed.text("ray.python")
    found = f"{seen.probed.text('python.program')} is of {seen.probed.text('python.prefix')}, ray of {of_ray}"
    asked = seen.probed.text("asked.prefix")
    return f"{found}, {seen.lint.python} of {asked}" if asked not in ("", of_ray) else found
