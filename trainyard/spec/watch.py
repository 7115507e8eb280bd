"""The metric of a task: its source, and how long it may be silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator

from trainyard.spec.fields import Complaint, Duration, Filled, Section, check_relative, setting

Source = Literal["auto", "tensorboard", "stdout", "file", "mlflow"]
InTask = Annotated[Filled, AfterValidator(check_relative)]


class Watch(Section):
    """A metric that has to move: a task whose metric does not is ended and tried again."""

    metric: Filled = setting(
        ..., "The name of the scalar, as the training writes it: `rewards/time`."
    )
    source: Source = setting(
        "auto", "Where it is written; auto: TensorBoard files, else JSON lines on stdout."
    )
    path: InTask | None = setting(
        None, "file: its JSON lines or CSV; mlflow: its mlruns directory."
    )
    uri: Filled | None = setting(
        None, "mlflow: the tracking server, instead of $MLFLOW_TRACKING_URI."
    )
    step: Filled = setting(
        "step", "Key of the step in a JSON line or CSV; without it values are counted."
    )
    first: Duration = setting(600.0, "The first value has to come within it.")
    silence: Duration = setting(600.0, "After a value the next has to come within it.")
    constant: Duration | None = setting(
        None, "The value has to change within it; not given: it need not."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Complain about keys of another source than the chosen one."""
        if self.source == "file" and not self.path:
            yield Complaint(("path",), "is missing: source: file reads it")
        if self.path and self.source not in ("file", "mlflow"):
            yield Complaint(
                ("path",), f"is for source: file or mlflow, not {self.source}", self.path
            )
        if self.uri and (self.source != "mlflow" or self.path):
            yield Complaint(("uri",), "is for source: mlflow without a path", self.uri)
