"""What Ray's errors mean for an attempt."""

from __future__ import annotations

from ray import exceptions
from trainyard_runner import losses

INSTALLER = """\
Failed to set up runtime environment.
Traceback (most recent call last):
  File "pip.py", line 252, in _install
Run cmd[9] failed with the following details.
Last 50 lines of stdout:
    Looking in links: somewhere
    ERROR: No matching distribution found for nothing==1.0
"""


def test_a_dead_node_and_a_dead_worker_are_losses_with_their_own_words() -> None:
    error = exceptions.WorkerCrashedError()
    gone = losses.explain(error, node="gpu-0", node_is_alive=False)
    crashed = losses.explain(error, node="gpu-0", node_is_alive=True)
    assert (gone.outcome, gone.reason) == ("lost", "node gpu-0 died")
    assert crashed.reason == "Ray's worker process on gpu-0 ended (WorkerCrashedError)"


def test_running_out_of_memory_is_a_failure_that_says_so() -> None:
    ending = losses.explain(exceptions.OutOfMemoryError("killed"), node="gpu-0", node_is_alive=True)
    assert (ending.outcome, ending.reason) == ("failed", "gpu-0 ran out of memory, and Ray ended the task")


def test_an_environment_that_cannot_be_installed_fails_once_with_the_installers_words() -> None:
    ending = losses.explain(exceptions.RuntimeEnvSetupError(INSTALLER), node=None, node_is_alive=True)
    assert ending.reason == (
        "its runtime_env could not be set up: ERROR: No matching distribution found for nothing==1.0"
    )
    assert ending.is_final
    assert ending.tail == ("Looking in links: somewhere", "ERROR: No matching distribution found for nothing==1.0")


def test_a_cancelled_attempt_is_stopped() -> None:
    ending = losses.explain(exceptions.TaskCancelledError(), node=None, node_is_alive=True)
    assert ending.outcome == "stopped"


def test_a_node_that_ray_calls_dead_has_died_even_if_it_is_still_listed() -> None:
    ending = losses.explain(exceptions.NodeDiedError("gone"), node="gpu-1", node_is_alive=True)
    assert (ending.outcome, ending.reason) == ("lost", "node gpu-1 died")


def test_a_dead_node_without_a_name_is_still_a_sentence() -> None:
    assert losses.explain(exceptions.WorkerCrashedError(), node=None, node_is_alive=False).reason == "its node died"


def test_a_worker_that_ends_without_a_word_was_stopped_if_somebody_stopped_it() -> None:
    of_the_run = losses.unsaid(node=None, is_stopping=True, culprit=None)
    together = losses.unsaid(node=None, is_stopping=False, culprit="a")
    lost = losses.unsaid(node=None, is_stopping=False, culprit=None)
    assert (of_the_run.outcome, of_the_run.reason) == ("stopped", "the run was stopped")
    assert (together.outcome, together.reason) == ("stopped", "stopped together with 'a'")
    assert (lost.outcome, lost.reason) == ("lost", "its worker ended without a word")
