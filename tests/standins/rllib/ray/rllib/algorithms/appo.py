"""Stands where RLlib's APPO is: it takes what PPO takes, as far as Schola asks."""

from ray.rllib.algorithms.ppo import PPOConfig as APPOConfig  # noqa: F401
