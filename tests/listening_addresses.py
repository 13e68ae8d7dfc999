"""The addresses on which a process and its descendants listen, from /proc."""

import socket
from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"


def listening_addresses(pid: int) -> set[str]:
    """The addresses (without ports) of all TCP sockets that a process and its descendants listen on."""
    inodes = {inode for process in process_tree(pid) for inode in _sockets(process)}
    return {address for inode, address in _listeners() if inode in inodes}


def process_tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:  # the thread ended since it was listed
            continue
        for child in children:
            yield from process_tree(int(child))


def _sockets(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # closed since it was listed
            continue
        if target.startswith("socket:["):
            yield target.removeprefix("socket:[").removesuffix("]")


def _listeners() -> Iterator[tuple[str, str]]:
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == LISTENING:
                yield columns[9], _readable(columns[1].partition(":")[0], family)


def _readable(text: str, family: socket.AddressFamily) -> str:
    """Decode an address. The kernel writes 32-bit words in the machine's byte order."""
    words = bytes.fromhex(text)
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    return socket.inet_ntop(family, packed).removeprefix("::ffff:")
