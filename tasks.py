"""Invoke finds the tasks here; they live in trainyard/tasks/."""

from trainyard.tasks import namespace

__all__ = ["namespace"]
