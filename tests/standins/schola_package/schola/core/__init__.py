"""The parts that Schola's launchers use."""
