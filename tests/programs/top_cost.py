"""What `spillway top` costs on a terminal of 80x24: the time and its CPU time until a run's program,
called NAME, is on its first screen, and then CPU time for LOOKS looks, as JSON.
usage: top_cost.py SPILLWAY NAME LOOKS"""

import fcntl
import glob
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

PATIENCE_S = 60
INTERVAL_S = 0.25


def cpu_s(pid):
    """CPU time of all threads, to the nanosecond: what utime and stime of /proc/PID/stat have in ticks."""
    while True:
        paths = glob.glob(f"/proc/{pid}/task/*/schedstat")
        try:
            return sum(int(open(path, encoding="ascii").read().split()[0]) for path in paths) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            pass  # A thread has ended since they were listed.


def read(fd, until, text=None):
    """What comes until a time, or until a text has come."""
    written = ""
    while (left := until - time.monotonic()) > 0 and not (text and text in written):
        if select.select([fd], [], [], left)[0]:
            written += os.read(fd, 65536).decode(errors="replace")
    return written


name, looks = sys.argv[2], int(sys.argv[3])
started = time.monotonic()
fd, other = pty.openpty()
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(other, termios.TIOCSCTTY, 0)
    for to in range(3):
        os.dup2(other, to)
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.argv[1], ["spillway", "top", "--interval", str(INTERVAL_S)])
written = read(fd, time.monotonic() + PATIENCE_S, name)
assert name in written, written
first_s, first_cpu_s = time.monotonic() - started, cpu_s(pid)
# The first look has no rates; what comes with the second is left out too.
read(fd, time.monotonic() + 2 * INTERVAL_S)
began, before_s = time.monotonic(), cpu_s(pid)
read(fd, began + looks * INTERVAL_S)
used_s = cpu_s(pid) - before_s
# On a machine that is late there were fewer looks than this says, never more.
passed = (time.monotonic() - began) / INTERVAL_S
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
cost = {"first_screen_s": first_s, "first_screen_cpu_s": first_cpu_s, "look_cpu_s": used_s / passed}
print(json.dumps(cost))
