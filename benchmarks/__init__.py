"""What Trainyard costs beside what it stands on: ratios measured side by side in one run."""
