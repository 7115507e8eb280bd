"""How everything of a cluster goes, and what stands in the way."""
