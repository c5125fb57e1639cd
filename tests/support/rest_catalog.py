"""A catalog that speaks Iceberg's REST protocol: Iceberg's own handlers, in Spark's JVM, behind a small server.

What a request means, and which commit is refused, is decided by Iceberg (CatalogHandlers); only the way there is ours.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_REQUESTS = "org.apache.iceberg.rest.requests."
_STATUS = {
    "NoSuchNamespaceException": HTTPStatus.NOT_FOUND,
    "NoSuchTableException": HTTPStatus.NOT_FOUND,
    "AlreadyExistsException": HTTPStatus.CONFLICT,
    "CommitFailedException": HTTPStatus.CONFLICT,
}


@contextmanager
def rest_catalog(spark: SparkSession, warehouse: Path) -> Iterator[str]:
    """Its address."""
    handlers = _Handlers(spark, warehouse)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            path = self.path.partition("?")[0].removeprefix("/v1/").split("/")
            try:
                status, text = HTTPStatus.OK, handlers.answer(self.command, path, body)
            except Py4JJavaError as error:
                kind = str(error.java_exception.getClass().getSimpleName())
                status = _STATUS.get(kind, HTTPStatus.INTERNAL_SERVER_ERROR)
                told = {"message": str(error.java_exception.getMessage()), "type": kind, "code": int(status)}
                text = json.dumps({"error": told})
            data = text.encode()
            self.send_response(status if data else HTTPStatus.NO_CONTENT)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_HEAD = _answer  # noqa: N815 -- the names that http.server calls

        def log_message(self, *_: object) -> None:
            """Not on the console of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="rest-catalog")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handlers:
    """Requests and answers as JSON, a catalog in memory, the files of its tables in a folder."""

    def __init__(self, spark: SparkSession, warehouse: Path) -> None:
        self._jvm: Any = spark._jvm
        self._iceberg = self._jvm.org.apache.iceberg
        self._catalog = self._iceberg.inmemory.InMemoryCatalog()
        self._catalog.initialize("rest", {"warehouse": str(warehouse)})
        jackson = self._iceberg.shaded.com.fasterxml.jackson
        visible = getattr(jackson.annotation, "JsonAutoDetect$Visibility").ANY
        kebab = getattr(jackson.databind, "PropertyNamingStrategies$KebabCaseStrategy")
        self._mapper = jackson.databind.ObjectMapper()
        self._mapper.setVisibility(jackson.annotation.PropertyAccessor.FIELD, visible)
        self._mapper.configure(jackson.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, False)
        self._mapper.setPropertyNamingStrategy(kebab())
        self._iceberg.rest.RESTSerializers.registerAll(self._mapper)

    def answer(self, method: str, path: list[str], body: str) -> str:
        handlers = self._iceberg.rest.CatalogHandlers
        identifiers = self._iceberg.catalog.TableIdentifier
        match method, path:
            case "GET", ["config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                return self._told(handlers.createNamespace(self._catalog, self._read("CreateNamespaceRequest", body)))
            case "POST", ["namespaces", namespace, "tables"]:
                request = self._read("CreateTableRequest", body)
                create = handlers.stageTableCreate if request.stageCreate() else handlers.createTable
                return self._told(create(self._catalog, identifiers.parse(f"{namespace}.x").namespace(), request))
            case "GET", ["namespaces", namespace, "tables", table]:
                mode = getattr(self._iceberg.rest, "RESTCatalogProperties$SnapshotMode").ALL
                return self._told(handlers.loadTable(self._catalog, identifiers.parse(f"{namespace}.{table}"), mode))
            case "POST", ["namespaces", namespace, "tables", table]:
                name, update = identifiers.parse(f"{namespace}.{table}"), self._read("UpdateTableRequest", body)
                return self._told(handlers.updateTable(self._catalog, name, update))
            case _:  # metrics
                return ""

    def _read(self, name: str, body: str) -> Any:  # noqa: ANN401 -- objects of the JVM
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self._mapper.readValue(body, loader.loadClass(f"{_REQUESTS}{name}"))

    def _told(self, response: Any) -> str:  # noqa: ANN401
        return str(self._mapper.writeValueAsString(response))
