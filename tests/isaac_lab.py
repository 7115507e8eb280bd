"""Sweeps like Isaac Lab's own, with its documented class names, as files of both generations."""

from __future__ import annotations

import functools
import importlib.util
import sys
import textwrap
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainyard import paths

HEADS = {
    "old": """
        import pathlib
        import sys

        sys.path.extend([str(pathlib.Path(__file__).parent.parent), str(pathlib.Path(__file__).parent)])
        import tuner
        import util
        """,
    "new": """
        from isaaclab_contrib.rl.ray import tuner, util
        """,
}
# The file next to the sweeps, whose classes the sweeps use.
SHAPES = '''
from ray import tune


class CameraJobCfg(tuner.JobCfg):
    """Varies the count of environments, the convolutions and the perceptron."""

    def __init__(self, cfg={}, vary_env_count=False, vary_cnn=False, vary_mlp=False):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        hydra = cfg["hydra_args"]
        cfg["runner_args"]["headless_singleton"] = "--headless"
        hydra["agent.params.config.max_epochs"] = 200
        if vary_env_count:
            cfg["runner_args"]["--num_envs"] = tune.choice([2**power for power in range(9, 13)])
            hydra["agent.params.config.horizon_length"] = tune.choice([2**power for power in range(3, 8)])
            hydra["agent.params.config.minibatch_size"] = tune.sample_from(self.smallest_batch)
        if vary_cnn:
            depth = tune.randint(2, 3)
            hydra["agent.params.network.cnn.activation"] = tune.choice(["relu", "elu"])
            hydra["agent.params.network.cnn.regularizer"] = "{name:None}"
            hydra["agent.params.network.cnn.convs"] = tune.sample_from(
                lambda _: [
                    {"filters": tune.randint(16, 32).sample(), "strides": str(tune.choice(["1", "2"]).sample())}
                    for _ in range(depth.sample())
                ]
            )
        if vary_mlp:
            depth = tune.randint(1, 4)
            hydra["agent.params.network.mlp.units"] = tune.sample_from(
                lambda _: [tune.randint(4, 32).sample() for _ in range(depth.sample())]
            )
            hydra["agent.params.network.mlp.activation"] = tune.choice(["tanh"]).sample()
        super().__init__(cfg)

    @staticmethod
    def smallest_batch(config):
        batch = config["runner_args"]["--num_envs"] * config["hydra_args"]["agent.params.config.horizon_length"]
        return next(size for size in range(128, batch + 1) if batch % size == 0)


class ModelCameraJob(CameraJobCfg):
    models = []

    def __init__(self, cfg={}):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        cfg["hydra_args"]["env.observations.policy.image.params.model_name"] = tune.choice(self.models)
        super().__init__(cfg, vary_env_count=True, vary_mlp=True)


class ResNetCameraJob(ModelCameraJob):
    models = ["resnet18", "resnet34"]


class TheiaCameraJob(ModelCameraJob):
    models = ["theia-tiny-patch16-224-cddsv", "theia-base-patch16-224-cdiv"]
'''
SWEEPS = """
from ray import tune
from ray.tune.progress_reporter import CLIReporter
from ray.tune.stopper import Stopper


def cartpole(cfg):
    cfg = util.populate_isaac_ray_cfg_args(cfg)
    cfg["runner_args"]["--task"] = tune.choice(["Isaac-Cartpole-RGB-v0"])
    return cfg


class CartpoleRGBNoTuneJobCfg(vision_cfg.CameraJobCfg):
    def __init__(self, cfg: dict = {}):
        super().__init__(cartpole(cfg))


class CartpoleRGBCNNOnlyJobCfg(vision_cfg.CameraJobCfg):
    def __init__(self, cfg: dict = {}):
        super().__init__(cartpole(cfg), vary_cnn=True)


class CartpoleRGBJobCfg(vision_cfg.CameraJobCfg):
    def __init__(self, cfg: dict = {}):
        super().__init__(cartpole(cfg), vary_env_count=True, vary_cnn=True, vary_mlp=True)


class CartpoleResNetJobCfg(vision_cfg.ResNetCameraJob):
    def __init__(self, cfg: dict = {}):
        super().__init__(cartpole(cfg))


class CartpoleTheiaJobCfg(vision_cfg.TheiaCameraJob):
    def __init__(self, cfg: dict = {}):
        cfg = cartpole(cfg)
        cfg["runner_args"]["--agent"] = "rl_games_feature_cfg_entry_point"
        super().__init__(cfg)


class CustomCartpoleProgressReporter(CLIReporter):
    def __init__(self):
        super().__init__(metric_columns={"training_iteration": "iter"}, max_report_frequency=5)


class CartpoleEarlyStopper(Stopper):
    def __init__(self):
        self._bad = set()

    def __call__(self, trial_id, result):
        out = result.get("Episode/Episode_Termination/cart_out_of_bounds")
        if result.get("training_iteration", 0) >= 20 and out is not None and out > 0.85:
            self._bad.add(trial_id)
        return trial_id in self._bad

    def stop_all(self):
        return False
"""
# The answer of `isaac_task.py space` about a class, for tests that need no other answer.
DESCRIBED = {
    "cfg_class": "CartpoleTheiaJobCfg",
    "space": {"num_envs": {"choice": [512, 1024]}},
    "draws": False,
    "files": [],
    "ends_sweep": False,
    "columns": ["training_iteration"],
    "notes": [],
}
FROM = {
    "old": "import vision_cfg",
    "new": "from isaaclab_contrib.rl.ray.hyperparameter_tuning import vision_cfg",
}


def write(directory: Path, generation: str) -> Path:
    """Write the files of a generation; return the path of the file with the sweeps."""
    home = directory / "hyperparameter_tuning"
    home.mkdir(parents=True)
    head = textwrap.dedent(HEADS[generation])
    (home / "vision_cfg.py").write_text(head + SHAPES)
    (home / "vision_cartpole_cfg.py").write_text(f"{head}{FROM[generation]}\n{SWEEPS}")
    return home / "vision_cartpole_cfg.py"


@functools.cache
def _loaded() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(
        "isaac_task", paths.shipped("jobs") / "isaac" / "isaac_task.py"
    )
    assert spec and spec.loader
    module = sys.modules["isaac_task"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def program() -> Iterator[Any]:
    """Give isaac_task.py, which nodes run, as a module; then remove the modules that it loaded."""
    modules, path = dict(sys.modules), list(sys.path)
    # Loaded once: the module caches where the many installed modules are.
    module = sys.modules["isaac_task"] = _loaded()
    try:
        yield module
    finally:
        for name in sys.modules.keys() - modules:
            del sys.modules[name]
        sys.modules.update(modules)
        sys.path[:] = path
