"""The program that runs one Isaac Lab training: command, search space, stoppers, next attempt."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter
from trainyard_runner.wire import event_files

from tests import isaac_lab

# Commands that Isaac Lab's own get_invocation_command_from_cfg (both generations) makes of the
# files of tests/isaac_lab.py, with Ray Tune's own parameters, each of them drawn at its lowest.
GOLDEN = [
    line.split(" ", 2)
    for line in (Path(__file__).parent / "golden" / "isaac_lab.txt").read_text().splitlines()
]
# The search's choices in the golden commands.
CHOSEN = {
    "CartpoleRGBNoTuneJobCfg": "",
    "CartpoleRGBCNNOnlyJobCfg": "activation=elu",
    "CartpoleRGBJobCfg": "num_envs=1024 horizon_length=16 activation=relu",
    "CartpoleResNetJobCfg": "num_envs=512 horizon_length=8 model_name=resnet34",
    "CartpoleTheiaJobCfg": "num_envs=512 horizon_length=8 model_name=theia-base-patch16-224-cdiv",
}


def command(file: Path, *flags: str) -> list[str]:
    with isaac_lab.program() as program:
        found: list[str] = program.command_of(
            program.arguments(["run", "--cfg_file", str(file), *flags]), program.load(file)
        )
        return found


@pytest.mark.parametrize(("generation", "name", "line"), GOLDEN)
def test_a_documented_class_gives_the_words_that_isaac_lab_would_run(
    generation: str, name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINYARD_RUN", raising=False)
    monkeypatch.setattr("random.choice", lambda options: options[0])
    monkeypatch.setattr("random.randrange", lambda lowest, *_: lowest)
    file = isaac_lab.write(tmp_path, generation)
    assert command(file, "--cfg_class", name, "--", *CHOSEN[name].split()) == shlex.split(line)


FUNCTIONS = """
import tuner, util
from ray import tune
class PushJobCfg(tuner.JobCfg):
    def __init__(self, cfg={}):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        cfg["runner_args"]["--task"] = "Push-v0"
        cfg["hydra_args"]["agent.minibatch"] = tune.sample_from(%s)
        cfg["hydra_args"]["agent.batch"] = tune.sample_from(lambda c: c["runner_args"]["--num_envs"] * 16)
        cfg["runner_args"]["--num_envs"] = tune.choice([64, 128])
        super().__init__(cfg)
"""


@pytest.mark.parametrize(
    "function",
    [
        "lambda c: c['hydra_args']['agent.batch'] // 4",
        "lambda c: c.get('hydra_args').get('agent.batch') // 4",
        "lambda spec: spec.config.hydra_args['agent.batch'] // 4",
        "lambda spec: spec['config']['hydra_args']['agent.batch'] // 4",
    ],
)
def test_a_function_may_need_what_another_one_makes(function: str, tmp_path: Path) -> None:
    (tmp_path / "push.py").write_text(FUNCTIONS % function)
    words = command(tmp_path / "push.py", "--cfg_class", "PushJobCfg", "--", "num_envs=64")
    assert {"agent.batch=1024", "agent.minibatch=256"} <= set(words)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "lambda c: c['hydra_args']['agent.minibatch'] // 4",
            "waits for what another one makes: agent.minibatch",
        ),
        (
            "lambda c: c['hydra_args']['agent.batc'] // 4",
            "function of agent.minibatch failed: KeyError: 'agent.batc'",
        ),
        (
            "lambda c: c['runner_args'] // 4",
            "function of agent.minibatch failed: TypeError: unsupported operand",
        ),
    ],
)
def test_a_function_that_fails_is_named(function: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "push.py").write_text(FUNCTIONS % function)
    with pytest.raises(SystemExit, match=message):
        command(tmp_path / "push.py", "--cfg_class", "PushJobCfg", "--", "num_envs=64")


def test_another_draw_is_another_network_and_the_same_draw_is_the_same(tmp_path: Path) -> None:
    file = isaac_lab.write(tmp_path, "old")
    flags = ["--cfg_class", "CartpoleRGBCNNOnlyJobCfg", "--draw"]
    drawn = [command(file, *flags, draw, "--", "activation=elu")[-1] for draw in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_library_makes_it_the_workflow_of_all_libraries(tmp_path: Path) -> None:
    file = isaac_lab.write(tmp_path, "old")
    words = command(
        file,
        "--cfg_class",
        "CartpoleRGBNoTuneJobCfg",
        "--rl_library",
        "skrl",
        "--workflow",
        "a/train.py",
    )
    assert words[2] == "/workspace/isaaclab/a/train.py"
    assert words[words.index("--rl_library") + 1] == "skrl"


def test_the_search_space_of_a_class_is_described_with_its_files(tmp_path: Path) -> None:
    file = isaac_lab.write(tmp_path, "new")
    with isaac_lab.program() as program:
        found = program.described(
            program.arguments(
                ["space", "--cfg_file", str(file), "--cfg_class", "CartpoleRGBJobCfg"]
            )
        )

    assert found == {
        "cfg_class": "CartpoleRGBJobCfg",
        "ends_sweep": False,
        "columns": [],
        "space": {
            "num_envs": {"choice": [512, 1024, 2048, 4096]},
            "horizon_length": {"choice": [8, 16, 32, 64, 128]},
            "activation": {"choice": ["relu", "elu"]},
        },
        "draws": True,
        "files": [
            "hyperparameter_tuning/vision_cartpole_cfg.py",
            "hyperparameter_tuning/vision_cfg.py",
        ],
        "notes": [],
    }


@pytest.mark.parametrize(
    ("written", "entry"),
    [
        ("tune.uniform(0, 1)", {"uniform": [0, 1]}),
        ("tune.quniform(lower=0, upper=1, q=0.1)", {"uniform": [0, 1], "step": 0.1}),
        ("tune.loguniform(1e-5, 1e-2)", {"loguniform": [1e-5, 1e-2]}),
        ("tune.randint(2, 5)", {"randint": [2, 4]}),
        ("tune.qrandint(2, 10, 2)", {"randint": [2, 10], "step": 2}),
        ("tune.lograndint(1, 1001)", {"lograndint": [1, 1000]}),
        ("tune.grid_search([64, 128])", {"grid": [64, 128]}),
        ("tune.choice([[32, 32], [64]])", {"choice": ["[32, 32]", "[64]"]}),
        ("tune.choice([True, None])", {"choice": [True, "None"]}),
    ],
)
def test_a_function_of_ray_tune_is_a_key_of_the_search(
    written: str, entry: dict[str, object]
) -> None:
    with isaac_lab.program() as program:
        program.stand_ins(Path("/nowhere/here"))
        domain = eval(written, {"tune": __import__("ray.tune").tune})
        assert domain.entry() == entry
        value = domain.sample()
        assert domain.read(program.as_text(value)) == value


@pytest.mark.parametrize("name", ["randn", "qrandn", "qloguniform", "qlograndint"])
def test_a_function_without_a_counterpart_is_named_with_what_stands_for_it(name: str) -> None:
    with isaac_lab.program() as program:
        program.stand_ins(Path("/nowhere/here"))
        with pytest.raises(SystemExit, match=rf"tune\.{name} has .*: use "):
            getattr(__import__("ray.tune").tune, name)(0, 1, q=1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--cfg_class CartpoleTheiaJob",
            "the file has no JobCfg class CartpoleTheiaJob (it has: CartpoleRGBNoTuneJobCfg, "
            "CartpoleRGBCNNOnlyJobCfg, "
            "CartpoleRGBJobCfg, CartpoleResNetJobCfg, CartpoleTheiaJobCfg)",
        ),
        (
            "--cfg_class CartpoleTheiaJobCfg --stopper CartpoleEarlyStoper",
            "the file has no stopper CartpoleEarlyStoper (it has: CartpoleEarlyStopper)",
        ),
        (
            "--cfg_class CartpoleTheiaJobCfg --progress_reporter Custom",
            "the file has no progress reporter Custom (it has: CustomCartpoleProgressReporter)",
        ),
    ],
)
def test_an_unknown_name_is_an_error_that_says_what_there_is(
    flags: str, message: str, tmp_path: Path
) -> None:
    file = isaac_lab.write(tmp_path, "old")
    with isaac_lab.program() as program, pytest.raises(SystemExit) as caught:
        program.described(program.arguments(["space", "--cfg_file", str(file), *flags.split()]))
    assert str(caught.value) == f"isaac_task.py: {message}"


def test_the_classes_of_a_file_are_listed_without_their_base(tmp_path: Path) -> None:
    file = tmp_path / "cfg.py"
    file.write_text(
        "import tuner\nfrom tuner import JobCfg\nclass A(JobCfg): pass\nclass B(A): pass\n"
    )
    with (
        isaac_lab.program() as program,
        pytest.raises(SystemExit, match=r"Give --cfg-class \(it has: A, B\)"),
    ):
        program.described(program.arguments(["space", "--cfg_file", str(file)]))


def test_a_stopper_sees_the_newest_scalars_after_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(event_files.__file__).parent))
    with SummaryWriter(str(tmp_path / "run" / "summaries")) as writer:
        for number in range(4):
            writer.add_scalar("Episode/Episode_Termination/cart out of bounds", number / 4, number)
            writer.add_scalar("rewards/time", 10.0 * number, number)

    with isaac_lab.program() as program:
        seen = list(program.rounds(tmp_path, iter([True, True, False]).__next__))
        keys = (
            "training_iteration",
            "Episode/Episode_Termination/cart_out_of_bounds",
            "rewards/time",
        )

        assert [tuple(found[key] for key in keys) for found in seen] == [
            (1, 0.0, 0.0),
            (2, 0.25, 10.0),
            (3, 0.5, 20.0),
        ]

        stopper = program.member(
            program.load(isaac_lab.write(tmp_path, "old")),
            "CartpoleEarlyStopper",
            program.Stopper,
            "",
        )()

        out = {"Episode/Episode_Termination/cart_out_of_bounds": 0.9}
        assert [stopper("t", {"training_iteration": number, **out}) for number in (19, 20)] == [
            False,
            True,
        ]


# The iterations in which Ray's own classes (2.60.0) end a trial that has these values of a metric.
VALUES = (0.0, 0.5, 0.9, 0.9, 0.9, 0.9, 0.2, 1.0)
RAYS_STOPPERS = {
    "NoopStopper()": [],
    "MaximumIterationStopper(5)": [5, 6, 7, 8],
    "TrialPlateauStopper('m')": [6],
    "TrialPlateauStopper('m', num_results=2, grace_period=1)": [4, 5, 6],
    "TrialPlateauStopper('m', std=0.5, num_results=3, metric_threshold=0.8, mode='max')": [
        4,
        5,
        6,
        8,
    ],
    "TrialPlateauStopper('m', std=0.5, num_results=3, metric_threshold=0.8, mode='min')": [7],
    "TrialPlateauStopper('absent', num_results=2, grace_period=1)": [],
    "FunctionStopper(lambda trial, result: result['m'] > 0.95)": [8],
    "CombinedStopper(MaximumIterationStopper(7), TrialPlateauStopper('m'))": [6, 7, 8],
}


@pytest.mark.parametrize(("written", "ended"), RAYS_STOPPERS.items())
def test_a_stopper_of_ray_ends_a_trial_where_it_does_there(written: str, ended: list[int]) -> None:
    with isaac_lab.program() as program:
        program.stand_ins(Path("/nowhere/here"))
        stopper = eval(written, vars(sys.modules["ray.tune.stopper"]).copy())
    assert [
        number for number, value in enumerate(VALUES, 1) if stopper("trial", {"m": value})
    ] == ended


@pytest.mark.parametrize(
    ("written", "stands_for_it"),
    [
        ("TimeoutStopper(60)", "`tune.time`"),
        ("ExperimentPlateauStopper('m')", "`tune.stop.plateau`"),
    ],
)
def test_a_stopper_of_a_whole_sweep_is_named_with_what_stands_for_it(
    written: str, stands_for_it: str
) -> None:
    with isaac_lab.program() as program:
        program.stand_ins(Path("/nowhere/here"))
        with pytest.raises(SystemExit, match=stands_for_it):
            eval(written, vars(sys.modules["ray.tune.stopper"]).copy())


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("def stop_all(self): return False", False),
        ("def stop_all(self):\n        'Never.'\n        return False", False),
        ("def stop_all(self): return self.count > 3", True),
        ("def stop_all(self): return True", True),
        ("pass", False),
    ],
)
def test_a_stopper_that_may_end_a_sweep_is_described_so(
    body: str, ends: bool, tmp_path: Path
) -> None:
    file = isaac_lab.write(tmp_path, "old")
    with file.open("a") as more:
        more.write(f"\n\nclass Early(CartpoleEarlyStopper):\n    {body}\n")

    words = [
        "space",
        "--cfg_file",
        str(file),
        "--cfg_class",
        "CartpoleTheiaJobCfg",
        "--stopper",
        "Early",
    ]

    with isaac_lab.program() as program:
        found = program.described(
            program.arguments([*words, "--progress_reporter", "CustomCartpoleProgressReporter"])
        )

    assert (found["ends_sweep"], found["columns"]) == (ends, ["training_iteration"])


@pytest.mark.parametrize(
    ("script", "left", "added"),
    [
        (
            "scripts/reinforcement_learning/train.py",
            "rsl_rl/cartpole/now/model_50.pt",
            ["--checkpoint", "latest"],
        ),
        (
            "scripts/reinforcement_learning/rsl_rl/train.py",
            "rsl_rl/cartpole/now/model_50.pt",
            ["--resume"],
        ),
        ("rl_games/train.py", "rl_games/cartpole/now/nn/last_ep_50.pth", ["--checkpoint", "{}"]),
        ("skrl/train.py", "skrl/cartpole/now/checkpoints/agent_50.pt", ["--checkpoint", "{}"]),
        ("sb3/train.py", "sb3/cartpole/now/model_50_steps.zip", ["--checkpoint", "{}"]),
        ("sb3/train.py", "sb3/cartpole/now/params/env.yaml", []),
    ],
)
def test_a_later_attempt_continues_from_the_newest_checkpoint(
    script: str, left: str, added: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for age, path in (
        (100, tmp_path / "logs" / left),
        (200, tmp_path / "logs" / left.replace("50", "10")),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1e9 - age, 1e9 - age))

    first = ["isaaclab.sh", "-p", script, "--task", "A"]
    with isaac_lab.program() as program:
        monkeypatch.setenv("TRAINYARD_ATTEMPT", "1")
        assert program.continued(first) == first
        monkeypatch.setenv("TRAINYARD_ATTEMPT", "2")
        assert program.continued(first) == [
            *first,
            *(word.format(tmp_path / "logs" / left) for word in added),
        ]
