"""What can go wrong with Kafka, and the one place where its error codes become ours.

LogError                  (schemas.errors)
|-- BrokerUnreachable     nobody answers                                       (timed)
|   |-- LeaderMissing     a partition has no leader just now                   (timed)
|   |-- AnswerLost        the connection broke before an answer                (timed)
|   |-- ClientStuck       a broker has records that do not come                 (timed)
|   |-- NotLetIn          user, password or certificate are not taken          (timed)
|   '-- ProducerEnded     the client cannot go on, a new one can               (timed)
|-- NotEnoughReplicas     fewer are in step than min.insync.replicas           (timed)
|-- NotAllowed            an ACL is missing
|-- TopicMissing
|-- TopicExists
|-- RecordsLost           Kafka took them, and does not have them
'-- KafkaRefused          all else
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from schemas.errors import ConfigError, LogError, Retry


class BrokerUnreachable(LogError):
    """No broker answers."""

    retry = Retry.TIMED
    solution = (
        "Start the broker, or correct `kafka.bootstrap_servers`, the network between, or `security.protocol` in "
        "`[kafka.client]`: a broker may leave a client that speaks another one without an answer."
    )


class LeaderMissing(BrokerUnreachable):
    """A broker answers, but a partition has no leader just now: a restart, or an election."""


class AnswerLost(BrokerUnreachable):
    """The connection broke after a question was asked."""


class ClientStuck(BrokerUnreachable):
    """A broker answers and has records, and the client that reads them gives none."""

    solution = "None is needed where the stage is started again: a new client goes on where this one stopped."


class NotLetIn(BrokerUnreachable):
    """A broker is there, and does not take who we are, or we do not take who it is."""

    solution = (
        "Correct `security.protocol` and the names that begin with `sasl.` and `ssl.` in `[kafka.client]`; "
        "docs/how-to/kafka.md has an example."
    )


class ProducerEnded(BrokerUnreachable):
    """Kafka's client cannot go on after retries; a new one can, from the last checkpoint on."""

    solution = "None is needed: capture opens its next epoch."


class NotEnoughReplicas(LogError):
    """A topic takes no records until more of its replicas are in step."""

    retry = Retry.TIMED
    solution = "Start the brokers that are away. Nothing is lost: capture waits, and goes on by itself."


class NotAllowed(LogError):
    """The broker knows us, and an ACL is missing."""


class TopicMissing(LogError):
    """A topic of the pipeline is not there."""

    solution = (
        "If it was deleted, run `penstock resync TABLE`; if this is another cluster, correct `kafka.bootstrap_servers`."
    )


class TopicExists(LogError):
    """A topic that must be new is there already."""


class RecordsLost(LogError):
    """Kafka took records and does not have them: a topic was deleted or made anew meanwhile, or brokers lost some."""

    solution = (
        "Start capture again: it goes on from its last checkpoint. A destination that misses rows by this holds their "
        "table and says so: run `penstock resync TABLE` then. Leave the pipeline's topics to penstock."
    )


class KafkaRefused(LogError):
    """The broker answered with an error that penstock has no other name for."""

    solution = (
        "Look at the broker's log; check permissions and quotas of this client, and max.message.bytes of the topics "
        "against `kafka.max_record`."
    )


AWAY = {
    KafkaError._TRANSPORT,  # noqa: SLF001 -- confluent-kafka names its local errors so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
}
LEADERLESS = {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,  # noqa: SLF001 -- "no leaders found": also said of a topic that does not exist
}
MISSING = {
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
STRANGERS = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
}
_LOST = {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}
"""What a leader says to whom it lacks the last records of."""
_ENDED = {
    KafkaError._FATAL,  # noqa: SLF001
    KafkaError._GAPLESS_GUARANTEE,  # noqa: SLF001
}
_WRITE = "Write"
_SETTING = re.compile(r'configuration property:? "([\w.]+)"|\b((?:sasl|ssl)[.][a-z.]*[a-z])')
"""As librdkafka names one that it does not take. What it repeats of values is never a secret's: it takes any."""
_TOPIC_IN_WORDS = re.compile(r" for (\S+) \[\d+\]")


def log_error(error: KafkaError, what: str, *, topic: str = "", operation: str = _WRITE) -> LogError:
    """The one place where Kafka's error codes become ours. `operation`: the one of Kafka's ACLs that this takes."""
    code = _code(error)
    topic = topic or next(iter(_TOPIC_IN_WORDS.findall(error.str())), "TOPIC")
    if code in AWAY:
        return BrokerUnreachable(f"No Kafka broker answered while {what} ({error.name()}).")
    if code in LEADERLESS:
        return LeaderMissing(f"A partition has no leader while {what} ({error.name()}).")
    if code in MISSING and operation != _WRITE:
        return TopicMissing(f"A topic does not exist: {what}.")
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExists(f"A topic exists already: {what}.")
    if code in DENIED:
        return not_allowed(what, topic, operation)
    return _refused_record(error, code, what, topic)


def _refused_record(error: KafkaError, code: int, what: str, topic: str) -> LogError:
    if code in MISSING:
        return RecordsLost(f"Topic {topic} was deleted while records were sent to it.")
    if code in _LOST:
        return RecordsLost(f"The leader of topic {topic} does not have all that was sent to it: {error.str()}.")
    if code == KafkaError._INCONSISTENT:  # noqa: SLF001
        return ProducerEnded(f"Kafka's client gave up {what}: {error.str()}.")
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return KafkaRefused(
            f"Kafka refused {what}: topic {topic} takes no batch of that size.",
            solution=f"Raise max.message.bytes of topic {topic} to `kafka.max_record` at least, then start again.",
        )
    return KafkaRefused(f"Kafka refused {what}: {error.str()}.")


@contextmanager
def settings_told() -> Iterator[None]:
    """What librdkafka says of a setting that it does not take: it names the setting, and may repeat the value."""
    try:
        yield
    except (KafkaException, TypeError, ValueError) as error:
        named = " and ".join(dict.fromkeys("".join(found) for found in _SETTING.findall(str(error))))
        raise ConfigError(
            f"kafka.client: librdkafka does not take {f'the setting {named}' if named else 'its settings'}.",
            solution="Correct [kafka.client]; its keys are the settings of librdkafka.",
        ) from None


def not_allowed(what: str, topic: str, operation: str) -> NotAllowed:
    """`operation` is a word of Kafka's ACLs."""
    return NotAllowed(
        f"Kafka does not allow {what}: the ACL {operation} on topic {topic} is missing.",
        solution=f"Run `kafka-acls --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation "
        f"{operation} --topic {topic}`; docs/how-to/kafka.md lists all that each stage needs.",
    )


def _code(error: KafkaError) -> int:
    """A producer that had to end says in words what ended it."""
    if error.code() not in _ENDED:
        return error.code()
    known = (KafkaError.MSG_SIZE_TOO_LARGE, *sorted(DENIED | MISSING | _LOST))
    return next((code for code in known if KafkaError(code).str() in error.str()), error.code())
