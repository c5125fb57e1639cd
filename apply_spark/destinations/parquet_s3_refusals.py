"""What S3 and its client refuse, as our errors. Told by their codes: their messages repeat what they were given."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 -- botocore's own, which is no OSError
    CredentialRetrievalError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from apply_spark.errors import DestinationAway, DestinationFull, NotPermitted
from schemas.errors import DestinationError

_NO_CREDENTIALS = (
    CredentialRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)


class BucketMissing(DestinationError):
    """Apply makes no bucket."""

    solution = "Make the bucket, or correct path, region and endpoint of the destination; then start apply again."


class _Answer(NamedTuple):
    """What an error of S3 means; `where` stands for the address of the log."""

    kind: type[DestinationError]
    reason: str
    solution: str


_MISSING = _Answer(BucketMissing, "The bucket of {where} does not exist", BucketMissing.solution)
_UNKNOWN = _Answer(
    NotPermitted,
    "S3 does not take the credentials for {where}",
    "Renew or correct them, and check region and endpoint of the destination; then start apply again.",
)
_DENIED = _Answer(
    NotPermitted,
    "S3 does not let apply use {where}",
    "Allow s3:ListBucket on the bucket, s3:GetObject, s3:PutObject and s3:AbortMultipartUpload on objects under the "
    "path; then start apply again.",
)
_FULL = _Answer(DestinationFull, "The server of {where} has no room", "Make room there; then start apply again.")
_BUSY = _Answer(DestinationAway, "The server of {where} cannot work now", "Wait, and start apply again.")
_UNDER_WAY = _Answer(
    DestinationAway,
    "Another write to {where} is under way, and does not end",
    "See that no other apply writes there; then start apply again.",
)
_ANOTHER = _Answer(
    DestinationError,
    "S3 refuses what apply does with {where}",
    "Look the code up in S3's list of error codes; then start apply again.",
)
_BY_CODE = {
    "NoSuchBucket": _MISSING,
    **dict.fromkeys(
        ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"),
        _UNKNOWN,
    ),
    **dict.fromkeys(("RequestTimeout", "SlowDown"), _BUSY),
    "XMinioStorageFull": _FULL,
}
_BY_STATUS: dict[int, _Answer] = {
    HTTPStatus.UNAUTHORIZED: _DENIED,
    HTTPStatus.FORBIDDEN: _DENIED,
    HTTPStatus.CONFLICT: _UNDER_WAY,
    HTTPStatus.TOO_MANY_REQUESTS: _BUSY,
    HTTPStatus.INTERNAL_SERVER_ERROR: _BUSY,
    HTTPStatus.BAD_GATEWAY: _BUSY,
    HTTPStatus.SERVICE_UNAVAILABLE: _BUSY,
    HTTPStatus.GATEWAY_TIMEOUT: _BUSY,
    HTTPStatus.INSUFFICIENT_STORAGE: _FULL,
}


def status_of(error: ClientError) -> int:
    """Of HTTP."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_under_way(error: Exception) -> bool:
    """S3 does not decide about a conditional write while another one of the same name is under way."""
    return isinstance(error, ClientError) and status_of(error) == HTTPStatus.CONFLICT


def error_of(error: ClientError | BotoCoreError, where: str) -> DestinationError:
    """What an operator is told; `where` is the address of the log."""
    if isinstance(error, ClientError):
        return _of_an_answer(error, where)
    kind = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return NotPermitted(
            f"There are no credentials for {where} ({kind}).",
            solution="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the host a role; or set "
            "access_key_id and secret_access_key of the destination. Then start apply again.",
        )
    if isinstance(error, ConnectionError | HTTPClientError):
        return DestinationAway(
            f"The server of {where} does not answer ({kind}).",
            solution="Check endpoint and region of the destination, and the network; then start apply again.",
        )
    return DestinationError(
        f"The client of S3 refuses to use {where} ({kind}).",
        solution="Correct path, endpoint, region and addressing of the destination.",
    )


def _of_an_answer(error: ClientError, where: str) -> DestinationError:
    status = status_of(error)
    code = str(error.response.get("Error", {}).get("Code", status))
    answer = _BY_CODE.get(code) or _BY_STATUS.get(status, _ANOTHER)
    told = f"{answer.reason.format(where=where)} ({error.operation_name}: {code})."
    return answer.kind(told, solution=answer.solution)
