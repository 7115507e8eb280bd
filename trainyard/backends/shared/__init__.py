"""Parts that several backends share, such as leashes, logs and records."""
