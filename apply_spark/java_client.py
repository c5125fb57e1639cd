"""The settings of `kafka.client`, which are librdkafka's, as Spark's Java client takes them.

What both clients call the same is passed on. Files are read here, on the driver, and travel as text: executors need not
have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from schemas.connections import KafkaConfig
from schemas.errors import ConfigError

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_VERIFICATION = "ssl.endpoint.identification.algorithm"
_TRANSLATED = {
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.keystore.location",
    _VERIFICATION,
}
_PKCS8 = ("BEGIN PRIVATE KEY", "BEGIN ENCRYPTED PRIVATE KEY")


def java_settings(kafka: KafkaConfig) -> dict[str, str]:
    """ConfigError: a file cannot be read, or holds a key that Java does not read."""
    client = kafka.client
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        **{name: value for name, value in client.items() if name not in _TRANSLATED},
        **_login(client),
        **_trusted(client),
        **_identity(client),
        **kafka.java_client,
    }


def _login(client: Mapping[str, str]) -> dict[str, str]:
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    settings = {"sasl.mechanism": mechanism}
    module = _LOGIN.get(mechanism)
    if module is not None:
        user, password = (_quoted(client.get(name, "")) for name in ("sasl.username", "sasl.password"))
        settings["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return settings


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _trusted(client: Mapping[str, str]) -> dict[str, str]:
    """Whom we believe to be the broker. Without a file each client asks its own system."""
    settings = {}
    authority = _pem(client, "ssl.ca")
    if authority is not None:
        settings = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    if _VERIFICATION in client:
        settings[_VERIFICATION] = client[_VERIFICATION].replace("none", "")
    return settings


def _identity(client: Mapping[str, str]) -> dict[str, str]:
    """Who we are, by a certificate. The password of the key has one name in both clients."""
    if "ssl.keystore.location" in client:
        return {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": client["ssl.keystore.location"]}
    certificate, key = _pem(client, "ssl.certificate"), _pem(client, "ssl.key")
    if certificate is None or key is None:
        return {}
    if not any(kind in key for kind in _PKCS8):
        raise ConfigError(
            "The key of `kafka.client` (`ssl.key.location`) is not in the form PKCS#8, the only one that Java reads.",
            solution="Run `openssl pkcs8 -topk8 -in KEY -out NEW` (with `-nocrypt`: without a password), and name NEW.",
        )
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}


def _pem(client: Mapping[str, str], name: str) -> str | None:
    """As it stands in the settings, or in the file that they name."""
    if f"{name}.pem" in client:
        return client[f"{name}.pem"]
    location = client.get(f"{name}.location")
    if location is None or location == "probe":
        return None
    try:
        return Path(location).read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"`{name}.location` of `kafka.client` cannot be read: {error}.",
            solution="Correct the path, and who may read the file: it holds PEM, one text after the other.",
        ) from None
