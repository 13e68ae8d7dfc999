# `gpucost serve` in a container, from the wheel that `make dist` writes to dist/. docs/how-to/in-cluster.md has the commands.
FROM docker.io/library/python:3.13-slim-trixie AS build
COPY dist/gpucost-*.whl /wheel/
RUN python -m venv /opt/gpucost && /opt/gpucost/bin/python -m pip install --no-cache-dir /wheel/*.whl

FROM docker.io/library/python:3.13-slim-trixie
COPY --from=build /opt/gpucost /opt/gpucost
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin gpucost \
    && install -d -o gpucost -g gpucost /data
# Only /data is written to, so that the container runs with --read-only. Bytecode cannot be written then.
ENV HOME=/data PATH=/opt/gpucost/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TMPDIR=/data
USER 10001:10001
VOLUME /data
WORKDIR /data
EXPOSE 8080
# The page answers before the first hour is attributed.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["gpucost"]
CMD ["serve", "--data", "/data/ledger", "--listen", "0.0.0.0"]
