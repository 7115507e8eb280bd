"""Checks of Ray in an image, and the one cause for which none of them can be trusted."""

from __future__ import annotations

from trainyard.images.lint.inspection import Finding, Inspection, failed, ok

_PATH_HINT = "Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH"


def cause(inspection: Inspection) -> Finding | None:
    """Return what keeps Ray's Python from running jobs; the other checks of Ray would only show what follows."""
    probed, user, lint = inspection.probed, inspection.user, inspection.lint
    program, first = probed.text("ray.program"), probed.text("ray.first_line")
    if not program:
        hint = f"Install ray[default]=={inspection.ray_version}. {_PATH_HINT}"
        return failed("ray", "there is no ray on PATH", hint)
    if lint.ray_interpreter and first.removeprefix("#!").split()[:1] != [lint.ray_interpreter]:
        detail = f"{program} starts with {first or 'no #! line'}, not #!{lint.ray_interpreter}"
        hint = f"Write it anew after the installation: RUN sed -i '1c #!{lint.ray_interpreter}' {program}"
        return failed("interpreter", detail, hint)
    if not probed.text("python.program"):
        return failed("python", "there is no python on PATH", _PATH_HINT)
    if lint.python and not probed.text("asked.prefix"):
        ended = probed.answer(f"python:{lint.python}")
        detail = f"{lint.python} does not run: {ended.output if ended else 'it printed nothing'}"
        return failed("python", detail, "image.yaml names it as the Python of Ray and the jobs: lint.python")
    if not _is_one_python(inspection):
        return failed("python", f"python on PATH is not Ray's: {_pythons(inspection)}", _PATH_HINT)
    imported = probed.ended("python.ended")
    if imported is None or imported.code != 0:
        detail = f'`python -c "import ray"` fails as {user}: {imported.reason if imported else "it printed nothing"}'
        return failed("import", detail, f"What was installed by root must be readable by {user}; WORKDIR has no ray/.")
    return None


def ray(inspection: Inspection) -> Finding:
    """Look whether `ray --version` is what the cluster runs."""
    expected, version = inspection.ray_version, inspection.probed.text("ray.version")
    ended = inspection.probed.ended("ray.ended")
    if ended is None or ended.code != 0 or not version:
        detail = f"`ray --version` fails as {inspection.user}: {ended.reason if ended else 'it printed nothing'}"
        return failed("ray", detail, "Try it: docker run --rm -it IMAGE ray --version")
    if version != expected:
        detail = f"has Ray {version}, and clusters run {expected}"
        return failed("ray", detail, f"Install ray[default]=={expected}: nodes of two versions do not talk.")
    return ok("ray", version)


def details(inspection: Inspection) -> dict[str, str]:
    """Return what the checks show of a Ray that runs jobs."""
    text = inspection.probed.text
    return {
        "interpreter": f"{text('ray.program')} starts with {text('ray.first_line')}",
        "python": f"{text('python.program')} ({text('python.prefix') or 'unknown'})",
        "import": f"Ray {text('python.ray')} as {inspection.user}",
    }


def _is_one_python(inspection: Inspection) -> bool:
    """Return whether `python`, `ray` and image.yaml's are one Python, as far as they have said so."""
    keys = ["python.prefix", "ray.python", *(["asked.prefix"] if inspection.lint.python else [])]
    prefixes = [inspection.probed.text(key) for key in keys]
    return len(set(prefixes)) == 1 or not all(prefixes)


def _pythons(inspection: Inspection) -> str:
    text = inspection.probed.text
    of_ray, of_file = text("ray.python"), text("asked.prefix")
    found = f"{text('python.program')} is of {text('python.prefix')}, ray of {of_ray}"
    return f"{found}, {inspection.lint.python} of {of_file}" if of_file not in ("", of_ray) else found
