"""What capture counts. Names end in their unit; labels are few."""

from __future__ import annotations

import math

from prometheus_client import Counter, Gauge

CHANGES = Counter("penstock_capture_changes_total", "Row changes written to Kafka.", ["topic"])
BYTES = Counter("penstock_capture_written_bytes_total", "Avro bytes of changes written to Kafka.")
CHECKPOINTS = Counter("penstock_capture_checkpoints_total", "Checkpoints written.")
CHECKPOINT_LSN = Gauge("penstock_capture_checkpoint_lsn_bytes", "LSN of the last checkpoint.")
ACKNOWLEDGED_LSN = Gauge("penstock_capture_acknowledged_lsn_bytes", "LSN acknowledged to Postgres.")
ACKNOWLEDGED_LAG = Gauge("penstock_capture_acknowledged_lag_bytes", "WAL received, not yet acknowledged.")
CUT_OFF_DESTINATIONS = Gauge(
    "penstock_capture_cut_off_destinations", "Destinations behind by more than max_wal, for which no WAL waits."
)
SLOT_WAL = Gauge("penstock_capture_slot_wal_bytes", "WAL that the slot keeps on the source.")
SLOT_WAL_LIMIT = Gauge("penstock_capture_slot_wal_limit_bytes", "max_slot_wal_keep_size; +Inf: none.")
SLOT_WAL_LEFT = Gauge(
    "penstock_capture_slot_wal_left_bytes", "WAL that may be written before the slot is in danger; +Inf: no limit."
)
SLOT_WAL_GROWTH = Gauge(
    "penstock_capture_slot_wal_growth_bytes_per_second", "Growth of the slot's WAL over the last five minutes."
)
SLOT_WAL_LIMIT_TIME = Gauge(
    "penstock_capture_slot_wal_limit_seconds", "Time until the limit is reached at this growth; +Inf: never."
)
SLOT_WAL_HOLDER = Gauge("penstock_capture_slot_wal_holder", "1 for who holds the slot's WAL, else 0.", ["holder"])
COPIED_ROWS = Gauge("penstock_capture_copied_rows", "Rows copied of the current generation.", ["table"])
COPIED_BYTES = Gauge("penstock_capture_copied_bytes", "Avro bytes copied of the current generation.", ["table"])
COPIED_SHARE = Gauge("penstock_capture_copied_ratio", "How much of the table is copied, by blocks.", ["table"])
COPY_LEFT = Gauge(
    "penstock_capture_copy_left_seconds",
    "Time until the copy is done, as fast as it was so far; NaN: unknown.",
    ["table"],
)

for _unknown_yet in (SLOT_WAL_LIMIT, SLOT_WAL_LEFT, SLOT_WAL_LIMIT_TIME):
    _unknown_yet.set(math.inf)  # 0 would alarm
