"""A schema registry with Confluent's REST API (Confluent, Karapace, Apicurio under `/apis/ccompat/v7`).

Schemas in, the ids that it allots out, for readers that ask there instead of on the schema topic. Capture alone asks
it, and only for shapes that it has not met since its start; adopt asks for what Debezium registered.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from schemas.errors import LogError, Retry
from schemas.identifiers import SchemaId

_SECONDS = 10.0
_CONTENT = "application/vnd.schemaregistry.v1+json"
_LARGEST_ID = 2**31 - 1
_LONGEST_WORDS = 300
_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_INCOMPATIBLE = {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
_NO_SCHEMA = 40403
"""What Confluent's API says, beside HTTP's 404, where a registry has no schema of that id."""
_NOT_LET_IN = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class RegistryUnreachable(LogError):
    """No registry answers."""

    retry = Retry.TIMED
    solution = "Start the registry, or correct `kafka.schema_registry` and the network between."


class RegistryRefused(LogError):
    """Somebody answers, and not as a registry should."""

    solution = (
        "Correct `kafka.schema_registry`: it is the address under which `/subjects` is found, with Apicurio the one "
        "that ends in `/apis/ccompat/v7`."
    )


class SchemaMissing(LogError):
    """The registry has no schema of an id that a record names."""


class SchemaRefused(LogError):
    """The registry's own rule forbids a shape that the source already has."""


class SchemaRegistry:
    """One registry. Registering the same schema under the same subject again gives the same id."""

    def __init__(self, address: SecretStr) -> None:
        parts = urlsplit(address.get_secret_value())
        self.address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        """Without user and password."""
        self._headers = {"Accept": f"{_CONTENT}, application/json", "Content-Type": _CONTENT}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"

    def register(self, subject: str, avro: dict[str, Any]) -> SchemaId:
        """Durable in the registry when it returns."""
        body = json.dumps({"schema": json.dumps(avro)}).encode()
        answer = self._asked(f"/subjects/{quote(subject, safe='')}/versions", subject, body)
        found = answer.get("id")
        if not isinstance(found, int) or not 0 <= found <= _LARGEST_ID:
            raise RegistryRefused(f"The schema registry at {self.address} gave subject {subject} no id of 31 bits.")
        return SchemaId(found)

    def schema(self, wanted: SchemaId) -> Any:  # noqa: ANN401 -- Avro is JSON
        """A schema that somebody registered."""
        answer = self._asked(f"/schemas/ids/{wanted}", f"schema {wanted}")
        try:
            return json.loads(answer["schema"])
        except (KeyError, TypeError, ValueError):
            raise RegistryRefused(f"The schema registry at {self.address} gave no Avro for schema {wanted}.") from None

    def compatibility(self) -> str:
        """The rule for new versions where a subject has none of its own; also the way to ask whether it is there."""
        return str(self._asked("/config", "its rules").get("compatibilityLevel", "not known"))

    def _asked(self, path: str, what: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self.address + path, body, self._headers)  # noqa: S310 -- http, by the config
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
                answer = json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise self._refusal(error, what) from None
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise self._untrusted(error.reason) from None
            raise self._away(error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from None
        except ValueError:
            raise RegistryRefused(f"{self.address} answers, and not with JSON: it is no schema registry.") from None
        if not isinstance(answer, dict):
            raise RegistryRefused(f"{self.address} answers, and not as a schema registry does.")
        return answer

    def _refusal(self, error: urllib.error.HTTPError, what: str) -> LogError:
        """The one place where a registry's status becomes our error."""
        code, said = _words(error)
        if code == _NO_SCHEMA:
            return SchemaMissing(f"The schema registry at {self.address} does not have {what}: {said}")
        if error.code in _BUSY or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RegistryUnreachable(f"The schema registry at {self.address} cannot answer now: {said}")
        if error.code in _NOT_LET_IN:
            return RegistryRefused(
                f"The schema registry at {self.address} does not let this user do what is needed for {what}: {said}",
                solution="Give user and password in `kafka.schema_registry`, `https://USER:PASSWORD@HOST`, of one who "
                "may read its rules, and register schemas under every subject that begins with the pipeline's name.",
            )
        if error.code in _INCOMPATIBLE:
            return SchemaRefused(
                f"The schema registry at {self.address} refuses the new shape of subject {what}: {said}",
                solution=f"The source has this shape already. Set the compatibility of subject {what} to NONE "
                f'(`PUT {self.address}/config/{what}` with `{{"compatibility": "NONE"}}`), then start capture again.',
            )
        return RegistryRefused(f"The schema registry at {self.address} refused {what}: {said}")

    def _away(self, reason: object) -> RegistryUnreachable:
        return RegistryUnreachable(f"No schema registry answers at {self.address}: {reason}.")

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> RegistryRefused:
        return RegistryRefused(
            f"The certificate of the schema registry at {self.address} is not trusted: {error.verify_message}.",
            solution="Name a file with the certificate of its authority in the variable SSL_CERT_FILE.",
        )


def _words(error: urllib.error.HTTPError) -> tuple[int | None, str]:
    """Its own code, and what it says."""
    try:
        answer = json.loads(error.read())
        code, message = answer.get("error_code"), str(answer["message"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
        code, message = None, str(error.reason)
    return code, f"{' '.join(message.split())[:_LONGEST_WORDS]} (HTTP {error.code})."
