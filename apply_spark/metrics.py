"""What apply counts. Names end in their unit; labels are few."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

APPLIED_ROWS = Counter("penstock_apply_rows_total", "Changes applied, before folding.", ["destination"])
COPIED_ROWS = Counter("penstock_apply_copied_rows_total", "Copied rows written.", ["destination"])
APPLIED_LSN = Gauge("penstock_apply_lsn_bytes", "LSN up to which the destination has everything.", ["destination"])
INTERVAL_SECONDS = Histogram("penstock_apply_interval_seconds", "Time from reading an interval to its commit.")
LAG_SECONDS = Gauge("penstock_apply_lag_seconds", "Age of the last applied checkpoint when it was applied.")
RETRIES = Counter("penstock_apply_retries_total", "Held tables that apply tried again by itself.", ["destination"])
ERRORED_TABLES = Gauge("penstock_apply_errored_tables", "Tables that are held by an error or paused.", ["destination"])
