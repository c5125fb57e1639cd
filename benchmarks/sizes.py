"""How much each case does: a full run, a quick one, and both scaled for trying things out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.ratios import DESTINATIONS

_LEAST = 0.2


@dataclass(frozen=True)
class Sizes:
    """The defaults are those of a full run."""

    rounds: int = 3
    copy_rows: int = 2_000_000
    inserts: int = 1_000_000
    updates: int = 300_000
    one_row: int = 200_000
    mix_transactions: int = 10_000
    wide_rows: int = 50_000
    messages: int = 1_000_000
    tiny: int = 10
    mirror_rows: int = 1_000_000
    end_to_end_rows: int = 1_000_000
    latency_rates: tuple[int, ...] = (100, 1_000, 5_000)
    latency_seconds: float = 20.0
    one_transaction_rows: int = 1_000_000
    huge_transaction_rows: int = 0
    large_values: int = 1_000
    rows_per_transaction: int = 10_000
    readers: tuple[str, ...] = (
        *("tcp/blocking", "tcp/nap", "tcp/spin", "tcp/low_water"),
        *("unix/nap", "unix/spin", "unix/blocking", "unix/low_water"),
    )

    destinations: tuple[str, ...] = DESTINATIONS
    rest: float = 30.0
    """The longest pause before a step, in seconds."""

    @property
    def backlog(self) -> int:
        return self.inserts + self.updates + self.one_row

    def scaled(self, scale: float) -> Sizes:
        """Smaller, but no case disappears that was there."""

        def smaller(count: int) -> int:
            return max(1, int(count * scale)) if count else 0

        return replace(
            self,
            copy_rows=smaller(self.copy_rows),
            mirror_rows=smaller(self.mirror_rows),
            inserts=smaller(self.inserts),
            updates=smaller(self.updates),
            one_row=smaller(self.one_row),
            mix_transactions=smaller(self.mix_transactions),
            wide_rows=smaller(self.wide_rows),
            messages=smaller(self.messages),
            end_to_end_rows=smaller(self.end_to_end_rows),
            latency_seconds=self.latency_seconds * max(scale, _LEAST),
            one_transaction_rows=smaller(self.one_transaction_rows),
            large_values=smaller(self.large_values),
            rows_per_transaction=max(100, int(self.rows_per_transaction * scale)),
        )


FULL = Sizes()
QUICK = Sizes(
    rounds=2,
    rest=4.0,
    copy_rows=400_000,
    inserts=300_000,
    updates=100_000,
    one_row=60_000,
    mix_transactions=0,
    wide_rows=0,
    readers=("tcp/low_water", "unix/low_water", "unix/nap"),
)
