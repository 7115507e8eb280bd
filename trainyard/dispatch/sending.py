"""Pack a run's files, wheels and modules; upload what the cluster lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from trainyard.dispatch import modules, wheels
from trainyard.dispatch.package import Package, Packages, pack
from trainyard.dispatch.plan import Prepared
from trainyard.results import formats
from trainyard.seams.ray_api import RayApi
from trainyard.steps import YES, Answer, Progress, Step, no
from trainyard.steps import run as run_steps
from trainyard.wording import counted


def send(
    ray: RayApi, prepared: Prepared, *, progress: Progress, note: Callable[[str], None]
) -> Packages:
    """Build a job's wheels, pack the job, and upload what the cluster lacks."""
    job = pack(prepared.files)
    resumed = prepared.resumed
    if resumed and job.name != (resumed.run.record().get("sent") or {}).get("package"):
        note(f"the job's files have changed since run {resumed.run.name}")

    wheel_files = wheels.built(prepared.wheels, progress)
    names = prepared.job.runtime_env.py_modules
    packages = Packages(
        job,
        wheel_files,
        wheels.packed(wheel_files),
        modules.packed(names, prepared.files.directory),
    )
    run_steps(list(_steps(ray, prepared, packages)), progress)
    return packages


def step(ray: RayApi, what: str, package: Package) -> Step:
    """Return the step that uploads a package's missing parts."""

    def missing() -> dict[str, int]:
        indices = {name: index for index, name in enumerate(package.parts)}
        return {name: index for name, index in indices.items() if not ray.has_package(name)}

    def is_complete() -> Answer:
        parts = missing()
        if parts:
            return no(f"{counted(len(parts), 'part')} missing")
        return YES

    def upload() -> None:
        for name, index in missing().items():
            ray.put_package(name, package.read(index))

    title = f"Send {what}, {formats.size(package.size)}"
    return Step(f"send:{what}", title, done=is_complete, do=upload, deadline=10.0)


def _steps(ray: RayApi, prepared: Prepared, packages: Packages) -> Iterator[Step]:
    yield step(ray, "the job", packages.job)
    if packages.wheels:
        yield step(ray, "wheels", packages.wheels)
    names = prepared.job.runtime_env.py_modules
    for name, module in zip(names, packages.modules, strict=True):
        if isinstance(module, Package):
            yield step(ray, f"module {Path(name).name}", module)
