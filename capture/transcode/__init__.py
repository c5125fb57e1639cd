"""Rows as Postgres sends them, from the stream or from COPY, to the bytes of their records."""
