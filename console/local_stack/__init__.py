"""The whole system on one machine: Postgres, Kafka and the jars of Spark, with nothing installed but this package."""
