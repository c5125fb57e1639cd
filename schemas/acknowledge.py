"""When Postgres may remove WAL: the policy, as the configuration names it and as a command carries it."""

from __future__ import annotations

import enum
from typing import Self

from pydantic import BaseModel, ByteSize, Field, model_validator


class Policy(enum.Enum):
    """When WAL may go."""

    DESTINATIONS = "destinations"
    KAFKA = "kafka"
    BOUNDED = "bounded"


class AcknowledgeConfig(BaseModel, frozen=True, extra="forbid"):
    """When Postgres may remove WAL."""

    policy: Policy = Field(
        default=Policy.DESTINATIONS,
        description="`destinations`: when every destination has it. `kafka`: when it lies on the topics. "
        "`bounded`: as `destinations`, but a destination that is more than `max_wal` behind is not waited for.",
    )
    max_wal: ByteSize | None = Field(
        default=None, gt=0, description="Most WAL that is kept for destinations. Needed for `bounded`, only there."
    )

    @model_validator(mode="after")
    def _bound_and_policy_agree(self) -> Self:
        if self.policy is Policy.BOUNDED and self.max_wal is None:
            raise ValueError('the policy bounded needs a bound; add max_wal, such as "20GB"')
        if self.policy is not Policy.BOUNDED and self.max_wal is not None:
            raise ValueError(f"max_wal does nothing with the policy {self.policy.value}; did you mean bounded?")
        return self

    def __str__(self) -> str:
        """In words, for people."""
        if self.max_wal is None:
            return self.policy.value
        return f"{self.policy.value}, at most {self.max_wal.human_readable(decimal=True)} of WAL"
