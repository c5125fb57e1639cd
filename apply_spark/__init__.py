"""Stage two: Kafka to destinations, with Spark Structured Streaming."""
