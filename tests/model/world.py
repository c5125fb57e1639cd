"""All of it together: what may happen next, what must be true after each step, and what must be true in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from apply_spark.config import ApplyTuning
from capture.checkpoints import last_accepted
from capture.errors import SlotLost
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.control import CaptureCommand, Control, Resync, SwitchPolicy
from schemas.errors import PenstockError
from schemas.identifiers import DestinationName, Epoch
from schemas.lsn import NOWHERE, Lsn
from stores.memory import RowsInMemory
from tests.model.applying import Apply, Died, Place, Violation
from tests.model.broker import Broker, Sending
from tests.model.capturing import Capture
from tests.model.promises import BOUND, Promises
from tests.model.source import A, B, Kind, Source, edit_of
from tests.model.streamed import SMALL, TOPICS

Step = tuple[str, ...]
LEVEL: Step = ("come to rest",)
"""Everything that is under way comes to its end: a place to begin at."""
_THAWED = "thawed "
_ROUNDS = 40


_NAMES = {"a": A, "b": B}
_NEEDS_NO_ROW = {"insert", "truncate"}


@dataclass(frozen=True)
class Scope:
    """How much may happen: the tables, the destinations, the transactions, and how often each kind of step."""

    kinds: tuple[Kind, Kind] = (Kind.PLAIN, Kind.BAG)
    atomic: tuple[bool, ...] = (True,)
    """One destination each."""
    joined: int = 1
    """How many are there from the beginning; the others join later."""
    transactions: tuple[str, ...] = ("update a, insert b",)
    """Edits of one transaction are divided by commas."""
    limits: dict[str, int] = field(default_factory=dict)
    """Steps that are not named here may be taken as often as they are possible."""
    level: float = 0.5
    """How many random walks begin where every table is copied and Ready."""
    interval_rows: int = 100


class World:
    """One pipeline. It is made again and led along the same steps wherever a state is needed twice."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.source = Source(dict(zip((A, B), scope.kinds, strict=True)))
        self.broker = Broker()
        self.broker.ensure_all(SMALL)
        self.memory = RowsInMemory()
        self.capture: Capture | None = None
        self.zombies: list[Capture] = []
        self.orphans: list[Sending] = []
        """What dead captures had sent, and what has not landed yet."""
        names = [DestinationName(f"d{number}") for number in range(len(scope.atomic))]
        self.places = [Place(name, atomic) for name, atomic in zip(names, scope.atomic, strict=True)]
        self.joined = scope.joined
        self.applies: list[Apply | None] = [None for _ in names]
        self.frozen: list[Apply] = []
        self.taken: Counter[str] = Counter()
        self._epochs = 0
        self.promises = Promises(self.source)

    # What may happen.

    def steps(self) -> list[Step]:
        possible = chain(self._of_source(), self._of_capture(), self._of_zombies(), self._of_applies())
        return [step for step in possible if self._may(_kind(step[0]))]

    def _may(self, kind: str) -> bool:
        return kind not in self.scope.limits or self.taken[kind] < self.scope.limits[kind]

    def _of_source(self) -> Iterator[Step]:
        for transaction in self.scope.transactions if self._may("commit") else ():
            if self._can_commit(transaction):
                yield "commit", transaction
        yield ("other WAL",)
        for name, table in _NAMES.items():
            yield ("leave", name) if table in self.source.members else ("join", name)
            yield "resync", name
            yield "rewrite", name
        yield from (("policy", policy.value) for policy in Policy)
        if self.joined < len(self.places):
            yield ("destination joins",)

    def _can_commit(self, transaction: str) -> bool:
        edits = [edit.rsplit(" ", 1) for edit in transaction.split(", ")]
        return all(edit in _NEEDS_NO_ROW or self.source.rows[_NAMES[table]] for edit, table in edits)

    def _of_capture(self) -> Iterator[Step]:
        capture = self.capture
        if capture is None:
            yield ("start",)
            return
        yield ("crash",)
        if not capture.ready:
            yield ("open",) if capture.checked else ("check",)
            return
        yield ("take over",)
        yield from self._of_stream(capture, "")
        if capture.feedback.waiting > 1:
            yield ("acknowledge in part",)
        if capture.would_acknowledge:
            yield ("acknowledge",)
        yield from self._of_sync(capture, "")

    def _of_zombies(self) -> Iterator[Step]:
        for place, zombie in enumerate(self.zombies):
            yield from self._of_stream(zombie, f"zombie {place}")
            yield from self._of_sync(zombie, f"zombie {place}")
        for place, sending in enumerate(self.orphans):
            yield from (("orphan lands", str(place), topic) for topic in sending.waiting())

    @staticmethod
    def _of_stream(capture: Capture, who: str) -> Iterator[Step]:
        pump = capture.stream.pump
        if capture.unread > 0:
            yield "read", who
        elif not pump.in_transaction and capture.connected and pump.safe < capture.source.end:
            yield "keepalive", who
        for topic in capture.sending.waiting():
            yield "lands", who, topic
            yield "lands twice", who, topic
        if capture.would_cut:
            yield "cut", who

    @staticmethod
    def _of_sync(capture: Capture, who: str) -> Iterator[Step]:
        if capture.would_look:
            yield "look", who
        if capture.snapshots.asked is not None:
            yield "snapshot", who
        elif capture.sync._waiting is not None:
            yield "begin copies", who
        for copy in capture.workers.under_way:
            yield "range", who, copy.name.name
            yield "worker dies", who, copy.name.name

    def _of_applies(self) -> Iterator[Step]:
        for number, apply in enumerate(self.applies[: self.joined]):
            who = str(number)
            if apply is None:
                yield "apply starts", who
                continue
            yield "apply crashes", who
            yield "apply taken over", who
            yield from self._of_apply(apply, "", who)
        for number, apply in enumerate(self.frozen):
            yield from self._of_apply(apply, _THAWED, str(number))

    @staticmethod
    def _of_apply(apply: Apply, how: str, who: str) -> Iterator[Step]:
        if apply.waiting:
            yield f"{how}take", who
            if apply.waiting > 1:
                yield f"{how}take one", who
            yield f"{how}take and die", who, "0"
            yield f"{how}take and die", who, "1"
        if apply.has_work():
            yield f"{how}work", who
            yield f"{how}work and die", who, "0"
            yield f"{how}work and die", who, "1"
        if apply.feedback.waiting:
            yield f"{how}tell", who

    # What happens.

    def do(self, step: Step) -> None:
        """Takes a step and checks what must be true after each."""
        name, *rest = step
        if _kind(name) in self.scope.limits:
            self.taken[_kind(name)] += 1
        confirmed = self.source.confirmed
        if _kind(name) in _APPLY_STEPS:
            self._apply_step(name, *rest)
            for place in self.places:
                self.promises.check_place(place)
        elif name in _CAPTURE_STEPS:
            self._capture_step(name, *rest)
            self._check_slot(confirmed)
        else:
            self._outer_step(name, *rest)

    def _outer_step(self, name: str, what: str = "", more: str = "") -> None:
        match name:
            case "commit":
                edits = [edit.rsplit(" ", 1) for edit in what.split(", ")]
                self.source.commit([edit_of(edit, _NAMES[table]) for edit, table in edits])
            case "come to rest":
                self.settle()
            case "other WAL":
                self.source.write_other()
            case "leave":
                self.source.leave(_NAMES[what])
            case "join":
                self.source.join(_NAMES[what])
            case "rewrite":
                self.source.rewrite(_NAMES[what])
            case "resync":
                self._command(Resync(_NAMES[what]))
            case "policy":
                bound = BOUND if what == Policy.BOUNDED.value else None
                self._command(SwitchPolicy(AcknowledgeConfig(policy=Policy(what), max_wal=bound)))
            case "destination joins":
                self.joined += 1
            case "orphan lands":
                self.orphans[int(what)].land(more)
            case _:
                raise ValueError(name)

    def _command(self, command: CaptureCommand) -> None:
        self.broker.append(TOPICS.control, Control("id", command).encode())

    def _who(self, who: str) -> Capture:
        found = self.zombies[int(who.split()[1])] if who else self.capture
        assert found is not None
        return found

    def _capture_step(self, name: str, who: str = "", what: str = "") -> None:
        if name == "start":
            self._start()
            return
        capture = self._who(who)
        if name == "crash":
            self._end(capture)
            return
        if name == "take over":
            self._freeze(capture)
            return
        try:
            _CAPTURE_STEPS[name](capture, what)
        except SlotLost as error:
            raise Violation(error.reason) from error
        except PenstockError:
            self._end(capture)

    def _start(self) -> None:
        self._epochs += 1
        required = tuple(place.name for place in self.places[: self.joined])
        try:
            self.capture = Capture(self.source, self.broker, self.memory, Epoch(self._epochs), required)
        except SlotLost as error:
            raise Violation(error.reason) from error
        self.promises.begin()

    def _freeze(self, capture: Capture) -> None:
        """Its connection ends, and another takes the slot; it goes on later, with what it has."""
        capture.connected, capture.seen = False, len(self.source.wal)
        self.zombies.append(capture)
        self._start()

    def _end(self, capture: Capture) -> None:
        """What it had sent may land all the same."""
        if capture is self.capture:
            self.capture = None
        else:
            self.zombies.remove(capture)
        if capture.sending.waiting():
            self.orphans.append(capture.sending)

    def _apply_step(self, name: str, who: str, commits: str = "") -> None:
        thawed, number, name = name.startswith(_THAWED), int(who), _kind(name)
        if name in ("apply starts", "apply taken over"):
            running = self.applies[number]
            if running is not None:
                self.frozen.append(running)
            tuning = ApplyTuning(interval_rows=self.scope.interval_rows)
            self.applies[number] = Apply(self.places[number], self.broker, self.source.schemas, tuning)
            return
        apply = self.frozen[number] if thawed else self.applies[number]
        assert apply is not None
        try:
            if name == "apply crashes":
                raise Died
            apply.handle.dies_after = int(commits) if commits else None
            _APPLY_STEPS[name](apply)
            apply.handle.dies_after = None
        except (PenstockError, Died):
            if thawed:
                self.frozen.remove(apply)
            else:
                self.applies[number] = None

    def _check_slot(self, before: Lsn | None) -> None:
        last = last_accepted(self.broker, TOPICS.checkpoints)  # type: ignore[arg-type]
        if last is not None and (self.source.confirmed or NOWHERE) > last[1].lsn:
            raise Violation("the slot is ahead of the last checkpoint")
        if self.capture is not None and self.capture.ready:
            self.promises.check_released(before, self.capture, self.places)

    # The end.

    def settle(self) -> None:
        """Lets everything come to rest, without further faults; then every destination is the source."""
        for _ in self.settling():
            pass

    def settling(self) -> Iterator[None]:
        """The same in rounds, before each of which it can be left."""
        self.zombies, self.orphans, self.frozen = [], [], []
        self.source.write_other()  # feedback that was lost is told with the next checkpoint
        for _ in range(_ROUNDS):
            yield
            before = {topic: len(log) for topic, log in self.broker.logs.items()}
            self._run_capture()
            self._run_applies()
            if self.capture is None or not self.capture.ready:
                continue
            self.do(("acknowledge",))
            if before == {topic: len(log) for topic, log in self.broker.logs.items()}:
                self.promises.check_end(self.capture, self.places[: self.joined])
                return
        raise Violation("it does not come to rest")

    def _run_capture(self) -> None:
        for name in ("start", "check", "open"):
            if (name,) in list(self._of_capture()):
                self.do((name,))
        capture = self.capture
        if capture is None or not capture.ready:
            return
        self.do(("look", ""))
        for name in ("snapshot", "begin copies", "range", "read", "keepalive", "cut"):
            while self.capture is capture and (step := self._first_step(capture, name)) is not None:
                self.do(step)
                if name == "cut":
                    break

    def _first_step(self, capture: Capture, name: str) -> Step | None:
        possible = chain(self._of_stream(capture, ""), self._of_sync(capture, ""))
        return next((step for step in possible if step[0] == name), None)

    def _run_applies(self) -> None:
        for number in range(self.joined):
            for name in ("apply starts", "take", "work", "tell"):
                for _ in range(_ROUNDS):
                    step = next((step for step in self._of_applies() if step[:2] == (name, str(number))), None)
                    if step is None:
                        break
                    self.do(step)


def _kind(name: str) -> str:
    return name.removeprefix(_THAWED)


def _copy_of(capture: Capture, table: str) -> int:
    return next(place for place, copy in enumerate(capture.workers.under_way) if copy.name.name == table)


_CAPTURE_STEPS: dict[str, Callable[[Capture, str], None]] = {
    "start": lambda _capture, _what: None,
    "crash": lambda _capture, _what: None,
    "take over": lambda _capture, _what: None,
    "check": lambda capture, _: capture.check(),
    "open": lambda capture, _: capture.open(),
    "read": lambda capture, _: capture.read(),
    "keepalive": lambda capture, _: capture.keepalive(),
    "cut": lambda capture, _: capture.stream.cut(),
    "lands": lambda capture, topic: capture.sending.land(topic),
    "lands twice": lambda capture, topic: capture.sending.land_twice(topic),
    "acknowledge": lambda capture, _: capture.acknowledge(),
    "acknowledge in part": lambda capture, _: capture.acknowledge(capture.feedback.waiting - 1),
    "look": lambda capture, _: capture.look(),
    "snapshot": lambda capture, _: capture.snapshot(),
    "begin copies": lambda capture, _: capture.begin_copies(),
    "range": lambda capture, table: capture.workers.range(
        capture.sync, capture.workers.under_way[_copy_of(capture, table)]
    ),
    "worker dies": lambda capture, table: capture.workers.die(
        capture.sync, capture.workers.under_way[_copy_of(capture, table)]
    ),
}
_APPLY_STEPS: dict[str, Callable[[Apply], None]] = {
    "apply starts": lambda _apply: None,
    "apply taken over": lambda _apply: None,
    "apply crashes": lambda _apply: None,
    "take": lambda apply: apply.take(),
    "take one": lambda apply: apply.take(1),
    "take and die": lambda apply: apply.take(),
    "work": lambda apply: apply.work(),
    "work and die": lambda apply: apply.work(),
    "tell": lambda apply: apply.feedback.land(),
}
