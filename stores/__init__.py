"""What the pipeline remembers."""
