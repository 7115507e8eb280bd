"""The metric of a task: its source, and how long it may be silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator

from trainyard.spec.fields import Complaint, Duration, Filled, Section, check_relative, setting

Source = Literal["auto", "tensorboard", "stdout", "file", "mlflow"]
InTask = Annotated[Filled, AfterValidator(check_relative)]


class Watch(Section):
    """The metric that shows progress.

    A task without a new value in time is ended and retried.
    """

    metric: Filled = setting(
        ..., "The name of the scalar, as the training writes it: `rewards/time`."
    )
    source: Source = setting(
        "auto", "Where the metric is written; auto: TensorBoard files, else JSON lines on stdout."
    )
    path: InTask | None = setting(
        None, "For `source: file` the JSON lines or CSV, for mlflow the directory mlruns."
    )
    uri: Filled | None = setting(
        None, "For `source: mlflow` the tracking server, instead of $MLFLOW_TRACKING_URI."
    )
    step: Filled = setting(
        "step", "Key of the step in a JSON line or CSV; where it is missing, values are counted."
    )
    first: Duration = setting(600.0, "The longest time before the first value.")
    silence: Duration = setting(600.0, "The longest time between two values.")
    constant: Duration | None = setting(
        None, "The longest time for which the value may stay the same; left out: no limit."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Require the source's keys, and reject those of other sources."""
        if self.source == "file" and not self.path:
            yield Complaint(("path",), "is missing: source: file reads it")
        if self.path and self.source not in ("file", "mlflow"):
            yield Complaint(
                ("path",), f"is for source: file or mlflow, not {self.source}", self.path
            )
        if self.uri and (self.source != "mlflow" or self.path):
            yield Complaint(("uri",), "is for source: mlflow without a path", self.uri)
