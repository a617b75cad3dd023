# One broker. The ZooKeeper is another container's, so neither Java nor Spark is installed.
FROM python:3.11-slim

WORKDIR /opt/klamm
COPY . .
RUN pip install --no-cache-dir -c constraints.txt . && useradd --system --home-dir /var/lib/klamm --create-home klamm && rm -rf /opt/klamm

USER klamm
WORKDIR /var/lib/klamm
EXPOSE 9092 19092
STOPSIGNAL SIGTERM
ENTRYPOINT ["klamm"]
CMD ["broker", "/etc/klamm/server.properties"]
