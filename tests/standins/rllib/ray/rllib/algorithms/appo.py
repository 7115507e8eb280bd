"""Stand-in for RLlib's APPO, which accepts all of PPO's arguments that Schola uses."""

from ray.rllib.algorithms.ppo import PPOConfig as APPOConfig  # noqa: F401
