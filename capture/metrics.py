"""What capture counts. Names end in their unit; labels are few."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

CHANGES = Counter("penstock_capture_changes_total", "Row changes written to Kafka.", ["topic"])
BYTES = Counter("penstock_capture_written_bytes_total", "Avro bytes of changes written to Kafka.")
CHECKPOINTS = Counter("penstock_capture_checkpoints_total", "Checkpoints written.")
CHECKPOINT_LSN = Gauge("penstock_capture_checkpoint_lsn_bytes", "LSN of the last checkpoint.")
ACKNOWLEDGED_LSN = Gauge("penstock_capture_acknowledged_lsn_bytes", "LSN acknowledged to Postgres.")
ACKNOWLEDGED_LAG = Gauge("penstock_capture_acknowledged_lag_bytes", "WAL received, not yet acknowledged.")
COPIED_ROWS = Gauge("penstock_capture_copied_rows", "Rows copied of the current generation.", ["table"])
COPIED_BYTES = Gauge("penstock_capture_copied_bytes", "Avro bytes copied of the current generation.", ["table"])
COPIED_SHARE = Gauge("penstock_capture_copied_ratio", "How much of the table is copied, by blocks.", ["table"])
