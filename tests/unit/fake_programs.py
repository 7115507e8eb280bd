"""Programs that are lists of answers; one that no test prepared is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.seams.programs import Ended


@dataclass
class FakePrograms:
    """Answers in order, each an exit code and the lines; and what the programs were given."""

    answers: list[tuple[int, str]] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    given: list[bytes] = field(default_factory=list)
    environs: list[Mapping[str, str]] = field(default_factory=list)

    def answer(self, *answers: tuple[int, str]) -> None:
        self.answers += answers

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        on_line: Callable[[str], None] = lambda line: None,
        seconds: float | None = None,
    ) -> Ended:
        if not self.answers:
            raise AssertionError(f"unprepared program: {command}")
        self.commands.append(tuple(command))
        self.given.append(stdin)
        self.environs.append(env)
        code, text = self.answers.pop(0)
        for line in text.splitlines():
            on_line(line)
        return Ended(code, tuple(text.splitlines()))
