"""Topics that Debezium wrote, taken over: what `penstock adopt` runs, in the place of capture."""
