"""Stand-in for RLlib's PPO, with the arguments of Ray 2.60."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

TAKES = {
    "api_stack": {"enable_rl_module_and_learner", "enable_env_runner_and_connector_v2"},
    "environment": {"clip_rewards", "clip_actions", "normalize_actions"},
    "callbacks": set[str](),
    "framework": set[str](),
    "env_runners": {"num_env_runners", "num_envs_per_env_runner", "rollout_fragment_length"},
    "multi_agent": {"policies", "policy_mapping_fn", "policies_to_train"},
    "resources": {"num_gpus", "num_cpus_for_main_process", "custom_resources_for_main_process"},
    "learners": {"num_learners", "num_cpus_per_learner", "num_gpus_per_learner"},
    "training": {
        "lr",
        "lambda_",
        "gamma",
        "minibatch_size",
        "num_epochs",
        "num_sgd_iter",
        "train_batch_size",
        "train_batch_size_per_learner",
        "clip_param",
        "model",
    },
}


class PPOConfig:
    """A configuration that records the arguments of each call, by method."""

    def __init__(self) -> None:
        self.asked: dict[str, dict[str, Any]] = {}

    def __getattr__(self, method: str) -> Any:
        def call(*given: Any, **named: Any) -> PPOConfig:
            if unknown := named.keys() - TAKES[method]:
                raise TypeError(f"{method}() got an unexpected keyword argument {unknown.pop()!r}")
            self.asked.setdefault(method, {}).update(named)
            if method == "callbacks":
                self.asked[method]["class"] = given[0].__name__
            return self

        return call

    def validate(self) -> None:
        if None in {**self.asked["resources"], **self.asked["learners"]}.values():
            raise TypeError("'>' not supported between instances of 'NoneType' and 'int'")
        if self.asked["api_stack"]["enable_env_runner_and_connector_v2"]:
            raise ValueError("a BaseEnv is of the old API stack")
        training = self.asked["training"]
        batch = training.get("train_batch_size", training.get("train_batch_size_per_learner"))
        if training["minibatch_size"] > batch:
            raise ValueError("`minibatch_size` must be <= `train_batch_size`")


class PPO:
    """The algorithm, which reports its resources and does not train."""

    @classmethod
    def default_resource_request(cls, config: PPOConfig) -> Any:
        config.validate()
        return SimpleNamespace(bundles=[{"CPU": 1.0}])
