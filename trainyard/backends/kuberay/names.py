"""The former name of `naming`, until nobody uses it."""

from trainyard.backends.kuberay.naming import *  # noqa: F403
