"""What both stages agree on: pure values, no I/O."""
