"""Copies of whole tables, beside the stream: one snapshot for all tables that wait, one process for each copy."""
