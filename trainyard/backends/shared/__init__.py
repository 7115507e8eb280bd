"""Parts that several backends share: nodes on one machine, leashes, logs, records, refusals."""
