"""Drives a shell on a terminal of its own that runs `spillway run` in the foreground: keys reach the
program as they would without Spillway. usage: terminal.py SPILLWAY"""
import os
import pty
import select
import sys
import time

PATIENCE_S = 60
PROGRAM = """
import os, signal, sys, time
block = bytearray(os.urandom(4096)) * 4096
interrupts = 0
def interrupted(*_):
    global interrupts
    interrupts += 1
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGCONT, lambda *_: print("continued", flush=True))
print("tty", *(os.isatty(fd) for fd in (0, 1, 2)), flush=True)
line = input()
print("line", line, flush=True)
while not interrupts:
    time.sleep(0.01)
time.sleep(0.5)
print("interrupts", interrupts, flush=True)
for i in range(4096):
    assert block[i * 4096 : i * 4096 + 4096] == block[:4096]
sys.exit(7)
"""


class Terminal:
    """A shell with job control behind a terminal, and what it has shown."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["PS1"] = ""
            os.environ["TERM"] = "dumb"
            os.execv("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.shown = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, text):
        """Waits until the terminal shows `text`, and forgets what it has shown until then."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"waited in vain for {text!r}; there is {self.shown!r}"
            self.shown += os.read(self.fd, 4096).decode(errors="replace")
        self.shown = self.shown.split(text, 1)[1]


terminal = Terminal()
try:
    terminal.type("stty -echo; echo begun\n")
    terminal.expect("begun\r\n")
    with open("program.py", "w") as file:
        file.write(PROGRAM)
    terminal.type(f"{sys.argv[1]} run --local 8M -- /usr/bin/python3 program.py\n")
    terminal.expect("tty True True True\r\n")
    terminal.type("a line\n")
    terminal.expect("line a line\r\n")
    terminal.type("\x1a")  # Ctrl-Z
    terminal.expect("Stopped")
    terminal.type("echo in the shell; jobs -s | wc -l\n")
    terminal.expect("in the shell\r\n1\r\n")
    terminal.type("fg\n")
    terminal.expect("continued\r\n")
    terminal.type("\x03")  # Ctrl-C: once, though both Spillway and the program are in the foreground
    terminal.expect("interrupts 1\r\n")
    terminal.type("echo status $?\n")
    terminal.expect("status 7\r\n")
    terminal.type("exit\n")
    print("whole")
finally:
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)
