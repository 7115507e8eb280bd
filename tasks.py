"""The file in which `invoke` looks for tasks; they are defined in trainyard/tasks/."""

from trainyard.console.signals import end_quietly

end_quietly()

from trainyard.tasks import namespace  # noqa: E402 - these imports are what Ctrl-C may meet

__all__ = ["namespace"]
