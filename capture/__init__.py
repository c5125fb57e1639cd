"""Stage one: Postgres to Kafka."""
