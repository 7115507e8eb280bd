"""Stand-in for RLlib's IMPALA, which accepts all of PPO's arguments that Schola uses."""

from ray.rllib.algorithms.ppo import PPOConfig as IMPALAConfig  # noqa: F401
