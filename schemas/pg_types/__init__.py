"""One row a Postgres type, found by oid: the one table behind copy, stream, Avro, Spark and the docs page."""
