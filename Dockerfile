# penstock with everything that it needs at run time: Python, a JRE for Spark, and Spark's jars for Kafka and Avro.
# Bookworm is named because it is the Debian that has openjdk-17; plain `3.11-slim` moves on to newer releases.
FROM python:3.11-slim-bookworm AS build

# The compiler is for the kernels of capture and apply; without one the image would be slow.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY schemas schemas
COPY stores stores
COPY capture capture
COPY apply_spark apply_spark
COPY console console
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .


FROM python:3.11-slim-bookworm

# The slim image has no folders for manual pages, which the JRE's alternatives want to link into.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

ENV PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/opt/penstock

COPY --from=build /wheels /tmp/wheels
# The jars are fetched now, with their checksums, so that a container starts without a network but its own.
# PySpark ships the Ivy that fetches them.
RUN pip install --no-cache-dir /tmp/wheels/*.whl \
    && rm -rf /tmp/wheels \
    && python -c "from console.local_stack.spark import spark_runtime; spark_runtime()" \
    && useradd --create-home --uid 10001 penstock \
    && mkdir -p /var/lib/penstock/state /var/lib/penstock/lake \
    && chown -R penstock:penstock /var/lib/penstock

USER 10001
WORKDIR /var/lib/penstock
ENTRYPOINT ["penstock"]
CMD ["--help"]
