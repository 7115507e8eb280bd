"""What Schola's launchers are made of."""
