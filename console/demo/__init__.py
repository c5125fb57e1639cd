"""A sample shop that lives, and the proof that its copy is equal."""
