"""Certificates for a test: an authority, a server called `localhost`, and clients; made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


class Authority:
    """Signs certificates, all in one folder: NAME.crt and NAME.key."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate)

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for a host or a user of this name."""
        certificate, key, request = (self._folder / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=DNS:{name}\nbasicConstraints=critical,CA:FALSE\n")
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        _openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", "-extfile", extensions, "-out", certificate),
        )
        key.chmod(0o600)
        return certificate, key


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
