"""Stands where RLlib's IMPALA is: it takes what PPO takes, as far as Schola asks."""

from ray.rllib.algorithms.ppo import PPOConfig as IMPALAConfig  # noqa: F401
