"""Parts that several backends share: nodes of one machine, leashes, logs, records, refusals."""
