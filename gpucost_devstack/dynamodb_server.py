"""Runs DynamoDB Local on the loopback address only. `gpucost_devstack.dynamodb_local` runs this file as a script.

The engine's own command line has no option for the address and binds every interface of the machine. This script runs
its server in this process and sets the host of Jetty's connector before it starts.

Arguments: the folder of `DynamoDBLocal.jar`, the JVM's library, the file descriptor to which the port is written once
the server listens, and the folder of its database; if it is empty, the database is in memory. It ends when its standard
input is closed, so it does not outlive its parent process.
"""

import os
import sys
from pathlib import Path

import jpype

UNUSED_PORT = "8000"
"""A placeholder: the engine's command line refuses 0, but the connector below accepts it."""


FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"
"""In a process of some minutes, the second compiler would take more processor time than it saves. A table on disk is
that of a demo, in which the second one saves 40% of the engine's time."""


def serve(folder: Path, library: str, database: str) -> int:
    """Start the server and return its port."""
    compilers = () if database else (FIRST_COMPILER_ONLY,)
    options = (
        *compilers,
        "-XX:+UseSerialGC",
        f"-Djava.library.path={folder / 'DynamoDBLocal_lib'}",
        "-Djava.net.preferIPv4Stack=true",
    )
    jpype.startJVM(library, *options, classpath=[str(folder / "DynamoDBLocal.jar")])
    runner = jpype.JClass("software.amazon.dynamodb.services.local.main.ServerRunner")
    storage = ["-dbPath", database] if database else ["-inMemory"]
    proxy = runner.createServerFromCommandLineArgs([*storage, "-port", UNUSED_PORT, "-disableTelemetry"])
    field = proxy.getClass().getDeclaredField("server")
    field.setAccessible(True)
    (connector,) = field.get(proxy).getConnectors()
    connector.setHost("127.0.0.1")
    connector.setPort(0)
    proxy.start()
    return int(connector.getLocalPort())


if __name__ == "__main__":
    port = serve(Path(sys.argv[1]), sys.argv[2], sys.argv[4])
    with open(int(sys.argv[3]), "w") as channel:  # noqa: PTH123 - a file descriptor
        channel.write(str(port))
    sys.stdin.read()
    os._exit(0)  # the engine's threads would keep the process alive
