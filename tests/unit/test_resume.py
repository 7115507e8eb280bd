"""A run that resumes another: which tasks run again, what they begin with, and how it is shown."""

from __future__ import annotations

import datetime
import errno
import json
import os
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
from trainyard_runner.head import inheritance
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.records import Records
from trainyard_runner.wire import archive, names, unpack
from trainyard_runner.wire.resume import PART_BYTES, Inherited, Resume
from trainyard_runner.wire.stream import EventStream

from trainyard import Cluster, Job
from trainyard.dispatch import plan
from trainyard.dispatch.follow import Screen
from trainyard.dispatch.package import pack
from trainyard.dispatch.plan import Prepared
from trainyard.dispatch.resume import Resumed, link, send
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, RequestError
from trainyard.operations import new_run, resume, runs, sweeps
from trainyard.paths import Here
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.spec.load import load_job
from trainyard.spec.show import as_yaml

JOB = "command: [python3, train.py, '{seed}']\nmatrix: {seed: [0, 1]}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a project with a job and a cluster file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for path, text in {
        "jobs/rl/job.yaml": JOB,
        "clusters/lab.yaml": "name: lab\nbackend: local\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def former(here: Path, *ended: tuple[str, str], **record: Any) -> RunDirectory:
    """Return a run that has ended, with its tasks and how they ended."""
    known: dict[str, Any] = {
        "run": "rl-1",
        "cluster": "lab",
        "job_directory": str(here / "jobs/rl"),
        "tasks": [task for task, _ in ended],
    }

    job = as_yaml(load_job(here / "jobs/rl"))
    known |= {
        "cluster_file": str(here / "clusters/lab.yaml"),
        "flags": {"set": [], "backend": None},
    }
    run = store.create(
        here / "results", known | record, cluster="name: lab\nbackend: local\n", job=job
    )

    lines = [
        (
            f'{{"seq": {seq}, "time": 1.0, "event": "task-ended", "task": "{task}", "state": '
            f'"{state}"}}\n'
        )
        for seq, (task, state) in enumerate(ended)
    ]

    end = (
        f'{{"seq": {len(lines)}, "time": 2.0, "event": "run-ended", "state": "failed", "exit": '
        '1, "seconds": 1.0}\n'
    )
    run.events.write_text("".join([*lines, end]))

    return run


def ready(
    run: RunDirectory, *overrides: str, file: str | None = None, notes: list[str] | None = None
) -> Any:
    screen = Screen(note=(notes if notes is not None else []).append)
    # The fixture made the project the current directory.
    return resume.ready(
        run,
        file,
        here=Here(os.environ, Path.cwd()),
        overrides=overrides,
        backend=None,
        screen=screen,
    )


def test_missing_files_are_fetched_before_tasks_are_told_their_beginning(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = former(here, ("seed=0", "succeeded"), ("seed=1", "failed"))

    def fetched(run: RunDirectory, tasks: Collection[str], *, here: Here, screen: Screen) -> None:
        for task in tasks:
            run.checkpoint(task).mkdir(parents=True)
            (run.checkpoint(task) / "file").write_text("x")

    monkeypatch.setattr(runs, "fetch_to_resume", fetched)
    prepared, _ = ready(run)
    assert prepared.resumed.plan.inherited == (Inherited("seed=1", True, False),)


def test_a_resumed_run_skips_successes_and_inherits_local_files(here: Path) -> None:
    run = former(here, ("seed=0", "succeeded"), ("seed=1", "failed"))
    for place in (run.checkpoint("seed=1"), run.outputs("seed=1"), run.outputs("seed=0")):
        place.mkdir(parents=True)
        (place / "file").write_text("x")

    notes: list[str] = []
    prepared, _ = ready(run, notes=notes)
    assert prepared.resumed.plan == Resume("rl-1", ("seed=0",), (Inherited("seed=1", True, True),))
    assert (
        prepared.resumed.described(2)
        == "resumes rl-1: skips 1 task that succeeded; from their checkpoints: seed=1"
    )
    assert notes == []
    new = RunDirectory(here / "results" / "rl-2")
    link(prepared.resumed, new)
    assert sorted(str(path.relative_to(new.path)) for path in new.path.rglob("file")) == [
        "checkpoints/seed=1/file",
        "outputs/seed=0/file",
        "outputs/seed=1/file",
    ]

    assert store.fetched(new.outputs("seed=1")) == 1


def test_a_resumed_run_copies_files_where_hard_links_are_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    run = former(here, ("seed=0", "succeeded"), ("seed=1", "failed"))
    run.outputs("seed=0").mkdir(parents=True)
    (run.outputs("seed=0") / "file").write_text("x")
    (run.outputs("seed=0") / "latest").symlink_to("file")
    prepared, _ = ready(run)
    new = RunDirectory(here / "results" / "rl-2")
    link(prepared.resumed, new)
    assert (new.outputs("seed=0") / "file").read_text() == "x"
    assert (new.outputs("seed=0") / "latest").readlink() == Path("file")


def test_a_job_that_has_changed_is_said_and_flags_count_again(here: Path) -> None:
    run = former(
        here,
        ("seed=0", "failed"),
        flags={"set": ["retries=2", "cluster.head.cpus=3"], "backend": None},
    )

    (here / "jobs/rl/job.yaml").write_text(JOB + "timeout: 5m\n")
    notes: list[str] = []
    prepared, cluster = ready(run, "env.A=b", notes=notes)

    assert (
        prepared.job.retries,
        prepared.job.timeout,
        prepared.job.env,
        cluster.spec.head.cpus,
    ) == (
        2,
        300.0,
        {"A": "b"},
        3,
    )

    assert notes == ["the job file has changed since run rl-1: timeout was not set, is 5m"]
    assert ready(run, file="lab")[1].spec.head.cpus != 3, (
        "flags for the former cluster are not for another one"
    )


SWEEP = """
command: [train, "{lr}"]
tune: {space: {lr: {uniform: [0, 1]}}, metric: reward, samples: 9}
"""


def former_sweep(here: Path, *overrides: str, backend: str | None = None) -> RunDirectory:
    """Return a sweep that has ended, and was dispatched with these flags."""
    (here / "jobs/rl/job.yaml").write_text(SWEEP)
    (here / "clusters/other.yaml").write_text("name: other\nbackend: local\n")
    job = load_job(here / "jobs/rl")
    assert job.tune
    tune = job.tune.model_dump(mode="json", exclude_none=True)
    run = former(here, flags={"set": list(overrides), "backend": backend}, tune=tune)
    run.study.write_text("{}\n")
    return run


@pytest.mark.parametrize(
    ("file", "typed", "backend", "cluster"),
    [
        (None, [], None, ("lab-2", "compose")),
        (None, ["cluster.name=lab-3"], "local", ("lab-3", "local")),
        ("other", [], None, ("other", "local")),
    ],
)
def test_a_sweep_continues_on_its_own_cluster_unless_told_otherwise(
    here: Path, file: str | None, typed: list[str], backend: str | None, cluster: tuple[str, str]
) -> None:
    run = former_sweep(here, "cluster.name=lab-2", "tune.samples=9", backend="compose")
    prepared, found = sweeps.ready_again(
        run, file, here=Here(os.environ, here), overrides=typed, backend=backend
    )
    assert (found.spec.name, found.spec.backend) == cluster
    # The run's record has the flags, for the next tune.resume.
    recorded = [] if file else ["cluster.name=lab-2"]
    assert prepared.overrides == (*recorded, *typed)


def test_a_sweep_whose_cluster_needs_a_secret_asks_for_it_again(here: Path) -> None:
    run = former_sweep(here, "cluster.env.API_TOKEN=(hidden)", "env.API_TOKEN=(hidden)")
    with pytest.raises(RequestError) as caught:
        sweeps.ready_again(run, None, here=Here(os.environ, here), overrides=[], backend=None)
    assert caught.value.lines() == [
        "run rl-1 was dispatched with secrets, which are not written down",
        "  - --set cluster.env.API_TOKEN: is missing: give it again",
        "  -> trainyard tune.resume rl-1 --set cluster.env.API_TOKEN=VALUE",
    ]


@pytest.mark.parametrize(
    ("ended", "record", "lines"),
    [
        (
            [("seed=0", "succeeded"), ("seed=1", "succeeded")],
            {},
            [
                "all tasks of run rl-1 succeeded: there is nothing to resume",
                "  -> To run all tasks again: trainyard train.dispatch {here}/jobs/rl",
            ],
        ),
        (
            [],
            {"tune": {"mode": "max", "metric": "r"}},
            [
                "run rl-1 is a sweep",
                "  at {here}/results/rl-1",
                "  -> Resume it: trainyard tune.resume rl-1",
            ],
        ),
        (
            [("seed=0", "failed")],
            {"flags": {"set": ["env.API_TOKEN=(hidden)"], "backend": None}},
            [
                "run rl-1 was dispatched with secrets, which are not written down",
                "  - --set env.API_TOKEN: is missing: give it again",
                "  -> trainyard train.resume rl-1 --set env.API_TOKEN=VALUE",
            ],
        ),
    ],
)
def test_a_run_that_cannot_be_resumed_is_refused_with_a_remedy(
    here: Path, ended: list[tuple[str, str]], record: dict[str, Any], lines: list[str]
) -> None:
    run = former(here, *ended, **record)
    with pytest.raises(RequestError) as caught:
        ready(run)
    assert caught.value.lines() == [line.format(here=here) for line in lines]


def test_skipped_tasks_are_shown_as_such(here: Path) -> None:
    resumes = {"run": "rl-1", "skipped": ["seed=0"], "from_checkpoint": []}
    run = store.create(
        here / "results",
        {"run": "rl-2", "cluster": "lab", "tasks": ["seed=0", "seed=1"], "resumes": resumes},
        cluster="",
        job="",
    )

    state = states.load(run)
    document = state.document(now=1.0)
    assert (document["resumes"], state.done, dict(+state.counts)) == (
        "rl-1",
        1,
        {"waiting": 1, "skipped": 1},
    )

    assert document["tasks"][0] == {
        "name": "seed=0",
        "state": "skipped",
        "reason": "succeeded in rl-1",
        "attempts": [],
    }

    assert runs.status(run, Here({}, here)).state.tasks["seed=0"].state == "skipped"


class Head:
    """A head that takes each part at once."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}

    def put_package(self, name: str, content: bytes) -> None:
        self.parts[name] = content

    def has_package(self, name: str) -> bool:
        return False


def test_checkpoints_and_outputs_reach_the_head_byte_for_byte(tmp_path: Path) -> None:
    run, head = RunDirectory(tmp_path / "rl-1"), Head()
    run.checkpoint("a").mkdir(parents=True)
    (run.checkpoint("a") / "policy").write_bytes(b"0123456789" * (PART_BYTES // 5))
    (run.outputs("a") / "curves").mkdir(parents=True)
    (run.outputs("a") / "curves" / "metrics.csv").write_text("1\n2\n")
    resumed = Resumed(run, Resume("rl-1", (), (Inherited("a", True, True),)))
    send(cast(RayApi, head), "rl-2", resumed, interrupted=lambda: False).do()
    assert len(head.parts) == 4, "two whole parts of the checkpoint, its rest, and the outputs"
    stream = EventStream(tmp_path / "head")

    records = Records(
        tmp_path / "head",
        stream,
        node="head",
        node_name=str,
        each_attempt=False,
        job_log=JobLog("rl-1"),
    )

    receiver = inheritance.Receiver(
        "rl-2", take=lambda name: head.parts.pop(name, None), check=lambda: None
    )
    receiver.receive(Resume.of(asdict(resumed.plan)) or Resume(""), records)
    stream.close()
    assert head.parts == {}
    unpack.unpack(records.checkpoint_parts("a"), tmp_path / "checkpoint")
    policy = (tmp_path / "checkpoint" / "policy").read_bytes()
    assert policy == (run.checkpoint("a") / "policy").read_bytes()
    ((whole, parts),) = records.outputs("a")
    assert (whole.whole, whole.file) == (True, names.output_archive("a", 1))
    unpack.unpack(parts, tmp_path / "outputs")
    assert (tmp_path / "outputs" / "curves" / "metrics.csv").read_text() == "1\n2\n"
    assert len(archive.scan(str(tmp_path / "outputs"))[0]) == 2


def test_a_run_does_not_wait_for_ever_for_an_operator_that_is_gone(tmp_path: Path) -> None:
    times = iter(range(0, 1000, 100))
    receiver = inheritance.Receiver(
        "rl-2",
        take=lambda _: None,
        check=lambda: None,
        clock=lambda: float(next(times)),
        sleep=lambda _: None,
    )

    stream = EventStream(tmp_path)
    records = Records(
        tmp_path, stream, node="head", node_name=str, each_attempt=False, job_log=JobLog("rl-1")
    )

    with pytest.raises(inheritance.SilentError, match="nothing came for 300 s"):
        receiver.receive(Resume("rl-1", (), (Inherited("a", True, False),)), records)

    stream.close()


def test_a_checkpoint_on_storage_counts_for_its_own_cluster_alone(here: Path) -> None:
    run = former(here, ("seed=0", "failed"), ("seed=1", "failed"))
    first, *rest = run.events.read_text().splitlines(keepends=True)
    started = (
        '{"time": 0.5, "event": "run-started", "checkpoints_at": "/outputs/.trainyard/lab/rl-1"}\n'
    )
    saved = (
        '{"time": 0.6, "event": "checkpoint", "task": "seed=1", "attempt": 1, "bytes": 3, '
        '"files": 1}\n'
    )
    lines = [started, saved, first, *rest]
    numbered = [json.dumps(json.loads(line) | {"seq": number}) for number, line in enumerate(lines)]
    run.events.write_text("\n".join(numbered) + "\n")

    prepared, _ = ready(run)
    assert prepared.resumed.on_storage == ("seed=1",)
    assert prepared.resumed.described(2) == (
        "resumes rl-1: from their checkpoints: seed=1; from the beginning: 1 task"
    )
    (here / "clusters/other.yaml").write_text("name: other\nbackend: local\n")
    prepared, _ = ready(run, file="clusters/other.yaml")
    assert prepared.resumed.on_storage == ()


@pytest.mark.parametrize("again", [False, True], ids=["dispatch", "resume"])
def test_a_run_of_a_python_program_is_resumed_on_the_cluster_that_it_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    begun: list[Prepared] = []

    def dispatch(_: object, prepared: Prepared, *given: object, **more: object) -> Any:
        begun.append(prepared)
        raise NotReadyError("no cluster")

    monkeypatch.setattr(new_run, "dispatch", dispatch)
    monkeypatch.setattr(plan, "revision", lambda _: None)
    cluster = Cluster.from_file("clusters/lab.yaml", set={"head.cpus": 3}, backend="compose")
    job = Job.from_directory("jobs/rl", set={"env.A": "b"})

    with pytest.raises(NotReadyError):
        if again:
            former(here, ("seed=0", "failed"), ("seed=1", "succeeded"))
            cluster.resume("rl-1", job)
        else:
            cluster.dispatch(job)

    record = plan.record_of(
        begun[0],
        pack(begun[0].files),
        run="rl-2",
        endpoint=Endpoint("lab", "http://127.0.0.1:1"),
        ray="2.52.1",
        now=datetime.datetime.now().astimezone(),
        command=["train.py"],
        skip_smoke=False,
    )
    assert record["flags"] == {
        "set": ["cluster.head.cpus=3", 'env.A="b"'],
        "backend": "compose",
    }

    run = former(here, ("seed=0", "failed"), ("seed=1", "succeeded"), **record | {"run": "rl-2"})
    prepared, meant = ready(run)
    assert (meant.spec.head.cpus, meant.spec.backend) == (3, "compose")
    assert prepared.job.env == {"A": "b"}
