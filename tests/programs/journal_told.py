"""What a command tells the journal of systemd, as JSON: {"told": [fields of each message], "lines": stderr}.
usage, in a mount namespace of its own: journal_told.py yes|no COMMAND...  (whether a journal listens)"""
import json
import os
import socket
import struct
import subprocess
import sys

PLACE = "/run/systemd/journal/socket"


def fields(message):
    """Of one message: NAME=VALUE, or NAME, the length in eight bytes, and VALUE."""
    found = {}
    while message:
        line, _, rest = message.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8:8 + length], rest[8 + length + 1:]
        found[name.decode()] = value.decode()
        message = rest
    return found


journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if sys.argv[1] == "yes":
    os.makedirs(os.path.dirname(PLACE))
    journal.bind(PLACE)
journal.setblocking(False)

ours, theirs = socket.socketpair()
stat = os.fstat(theirs.fileno())
environment = {**os.environ, "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"}
quiet = subprocess.DEVNULL
subprocess.run(sys.argv[2:], stdin=quiet, stdout=quiet, stderr=theirs, env=environment)
theirs.close()
lines = b"".join(iter(lambda: ours.recv(65536), b"")).decode()

told = []
while sys.argv[1] == "yes":
    try:
        message = journal.recv(1 << 20)
    except BlockingIOError:
        break
    if message:
        told.append(fields(message))
print(json.dumps({"told": told, "lines": lines}))
