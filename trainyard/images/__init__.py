"""Training images: built from a directory of images/, checked, pushed, and proven on the nodes."""
