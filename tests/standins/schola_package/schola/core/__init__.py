"""The parts of Schola's launchers."""
