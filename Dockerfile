# Four images. `broker`, the default: one broker; the ZooKeeper is another container's, so neither Java nor Spark is installed.
# `serve`: a cluster with its ZooKeeper in one container, for tests; KLAMM_ADVERTISED=HOST:PORT says where clients find it.
# With `--build-arg EXTRAS=embedded,metrics,control,journal,quick` it keeps journals and judges them.
# `pipeline`: Spark, with a Java runtime, for the tables of a journal. `cluster`: the same for Spark's drivers and executors in Kubernetes.
# Each image is the Python of its base and one folder, /opt/klamm. Nothing runs as root, and only /tmp, /lake and /var/lib/klamm are written.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/klamm
ENV PATH=/opt/klamm/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT=/src/constraints.txt
COPY pyproject.toml constraints.txt distributions/requirements.py ./

FROM build AS build-broker
RUN python requirements.py journal,metrics > wanted.txt && pip install -r wanted.txt
COPY . .
RUN pip install --no-deps . && python distributions/strip_image.py /opt/klamm

# The jars of ZooKeeper are in the folder of the source if `make wheels` fetched them; otherwise Maven does.
FROM build AS build-serve
ARG EXTRAS=embedded,metrics,control
RUN python requirements.py $EXTRAS > wanted.txt && pip install -r wanted.txt
COPY . .
RUN ls distributions/zookeeper/klamm_zookeeper/jars/zookeeper-3*.jar || (apt-get update && apt-get install -y --no-install-recommends maven)
RUN pip install --no-deps . ./distributions/zookeeper && python distributions/strip_image.py /opt/klamm

FROM build AS build-pipeline
RUN python requirements.py pipeline,connect,delta > wanted.txt && pip install -r wanted.txt
COPY . .
# The jars with which Spark reads s3a:// are in the folder of the source if something put them there; otherwise Maven fetches them.
RUN ls distributions/s3a/hadoop-aws-*.jar || (apt-get update && apt-get install -y --no-install-recommends maven)
RUN pip install --no-deps . && python -m klamm.pipeline.spark.s3a distributions/s3a && python distributions/strip_image.py /opt/klamm

FROM python:3.11-slim AS base
RUN useradd --system --uid 1000 --home-dir /var/lib/klamm --create-home klamm && mkdir /lake && chown klamm /lake
ENV PATH=/opt/klamm/bin:$PATH HOME=/var/lib/klamm PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/klamm
USER klamm
STOPSIGNAL SIGTERM
ENTRYPOINT ["klamm"]

FROM base AS pipeline
COPY --from=build-pipeline /opt/klamm /opt/klamm

# Pods of Spark start drivers and executors by the entry point of their image.
FROM pipeline AS cluster
ENV XDG_CACHE_HOME=/tmp
ENTRYPOINT ["python", "-m", "klamm.pipeline.spark.container"]

FROM base AS serve
COPY --from=build-serve /opt/klamm /opt/klamm
ENV KLAMM_ADVERTISED=localhost:9092 XDG_CACHE_HOME=/tmp
EXPOSE 9090 9092 9093 9094
HEALTHCHECK --interval=1s --timeout=4s --start-period=30s CMD ["python", "-m", "klamm.cli.serving.health", "9092"]
CMD ["serve", "--brokers", "1"]

FROM base AS broker
COPY --from=build-broker /opt/klamm /opt/klamm
EXPOSE 9092 19092
HEALTHCHECK --interval=1s --timeout=4s --start-period=30s CMD ["python", "-m", "klamm.cli.serving.health", "19092"]
CMD ["broker", "/etc/klamm/server.properties"]
