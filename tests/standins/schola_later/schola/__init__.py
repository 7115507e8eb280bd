"""Part of the stand-in of Schola 1.1 and later: only its launcher differs."""
