# Two images. `broker`, the default: one broker. The ZooKeeper is another container's, so neither Java nor Spark is installed.
# `pipeline`: Spark, with a Java runtime, for the tables of a journal.
FROM python:3.11-slim AS base

WORKDIR /opt/klamm
COPY . .
RUN useradd --system --home-dir /var/lib/klamm --create-home klamm && mkdir /lake && chown klamm /lake

FROM base AS pipeline
RUN pip install --no-cache-dir -c constraints.txt '.[pipeline,connect]' && rm -rf /opt/klamm
USER klamm
WORKDIR /var/lib/klamm
ENTRYPOINT ["klamm"]

FROM base AS broker
RUN pip install --no-cache-dir -c constraints.txt '.[journal,metrics]' && rm -rf /opt/klamm

USER klamm
WORKDIR /var/lib/klamm
EXPOSE 9092 19092
STOPSIGNAL SIGTERM
ENTRYPOINT ["klamm"]
CMD ["broker", "/etc/klamm/server.properties"]
