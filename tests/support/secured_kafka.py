"""A broker that lets nobody in without TLS and a password, with ACLs and quotas; and a side door for the test."""

from __future__ import annotations

import json
import subprocess
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from console.local_stack import kafka as kafka_module
from console.local_stack.kafka import LocalKafka
from console.local_stack.processes import free_port
from tests.support.certificates import Authority

PASSWORD = 'p4ss"w\\ord;'  # noqa: S105 -- of a broker of this test
"""With all that a file of JAAS would take for its own."""


class SecuredKafka(LocalKafka):
    """Its plain listener is the side door: who comes by it may do anything."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.authority = Authority(folder)
        certificate, key = self.authority.sign("localhost")
        self._identity = folder / "broker.pem"
        self._identity.write_text(key.read_text() + certificate.read_text())
        self._secured_port = free_port()

    def _settings(self, directory: Path, port: int, controller_port: int) -> dict[str, str]:
        settings, secured = super()._settings(directory, port, controller_port), self._secured_port
        settings["listeners"] += f",SECURED://127.0.0.1:{secured}"
        settings["advertised.listeners"] += f",SECURED://localhost:{secured}"
        settings["listener.security.protocol.map"] += ",SECURED:SASL_SSL"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return settings | {
            "listener.name.secured.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.secured.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(self._identity),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "quota.window.num": "2",
        }

    def add_user(self, name: str) -> None:
        upsert = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD.encode()
        )
        for future in self._admin.alter_user_scram_credentials([upsert]).values():
            future.result(30)

    def allow(self, user: str, prefix: str, *operations: AclOperation) -> None:
        """These operations on every topic whose name begins so."""
        self._add(*(_acl(user, prefix, each, AclPermissionType.ALLOW) for each in operations))

    def deny(self, user: str, prefix: str, operation: AclOperation) -> None:
        """Whatever else is allowed."""
        self._add(_acl(user, prefix, operation, AclPermissionType.DENY))

    def _add(self, *acls: AclBinding) -> None:
        for future in self._admin.create_acls(list(acls)).values():
            future.result(30)

    def limit(self, user: str, bytes_per_second: int) -> None:
        """How much the user may write."""
        command = ["kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap_servers, "--alter"]
        command += ["--add-config", f"producer_byte_rate={bytes_per_second}", "--entity-type", "users"]
        java = kafka_module._java("-Xmx128m")
        done = subprocess.run(
            [*java, *command, "--entity-name", user], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def client(self, user: str, **changes: str) -> dict[str, str]:
        """Settings of librdkafka; `changes` by their names with underscores."""
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority.certificate),
        }
        return settings | {name.replace("_", "."): value for name, value in changes.items()}

    def environment(self, user: str, **changes: str) -> dict[str, str]:
        """Of a process that comes by the front door."""
        return {
            "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": f"localhost:{self._secured_port}",
            "PENSTOCK_KAFKA__CLIENT": json.dumps(self.client(user, **changes)),
        }

    @cached_property
    def _admin(self) -> AdminClient:
        """Kept: with the client what it was asked would end."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


def _acl(user: str, prefix: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED
    return AclBinding(ResourceType.TOPIC, prefix, pattern, f"User:{user}", "*", operation, permission)
