"""Which checkpoints of the log count: the epoch rule, the same for every reader, capture included."""

from __future__ import annotations

from schemas.checkpoint import Checkpoint
from schemas.identifiers import Epoch


class EpochRule:
    """Reads checkpoints in log order and tells those of the live epoch from a zombie's late ones.

    An opening checkpoint ends all epochs before it. Where retention has cut the opening away, the oldest record
    that is left speaks for it."""

    def __init__(self, live: Epoch | None = None) -> None:
        self.live = live

    def accepts(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.opens or self.live is None:
            self.live = checkpoint.epoch
        return checkpoint.epoch == self.live
