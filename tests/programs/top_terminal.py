"""Looks at `spillway top` on a terminal of its own, and checks that the terminal is given back: by a key, by
Ctrl-C, by SIGTERM. usage: top_terminal.py SPILLWAY NAME [POOL], where a run's program is called NAME, and
POOL has two donors"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

PATIENCE_S = 60
ALTERNATE, MAIN = "\x1b[?1049h", "\x1b[?1049l"
CURSOR = "\x1b[?25h"
COMMAND = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Terminal:
    """`spillway top` behind a terminal of a given size, and what it has written."""

    def __init__(self, columns, lines):
        self.fd, other = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(other)
        self.other = other
        self.written = ""
        self.unread, self.row, self.column, self.cells = "", 1, 1, {}
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(other, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(other, fd)
            os.environ["TERM"] = "xterm-256color"
            pools = [word for pool in sys.argv[3:] for word in ("--pool", pool)]
            os.execv(sys.argv[1], ["spillway", "top", "--interval", "0.2", *pools])

    def expect(self, text):
        end = time.monotonic() + PATIENCE_S
        while text not in self.written:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"waited in vain for {text!r}; there is {self.written!r}"
            self.read()

    def read(self):
        text = os.read(self.fd, 65536).decode(errors="replace")
        self.written += text
        self.unread += text
        while self.unread:
            command = COMMAND.match(self.unread)
            if command is None and self.unread[0] == "\x1b" and len(self.unread) < 16:
                return  # the rest of it is on its way
            if command is None:
                self.cells[self.row, self.column] = self.unread[0]
                self.column += 1
                self.unread = self.unread[1:]
                continue
            numbers, kind = command.groups()
            if kind == "H":
                self.row, self.column = map(int, numbers.split(";")) if numbers else (1, 1)
            elif kind == "J":
                self.cells = {}
            self.unread = self.unread[command.end():]

    def expect_shown(self, text):
        """Of what changes only the cells that differ are written: this looks at the whole screen."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.shown():
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"waited in vain for {text!r}; the screen is\n{self.shown()}"
            self.read()

    def shown(self):
        columns = range(1, 1 + max((column for _, column in self.cells), default=0))
        lines = range(1, 1 + max((row for row, _ in self.cells), default=0))
        return "\n".join("".join(self.cells.get((row, column), " ") for column in columns) for row in lines)

    def type(self, text):
        self.written = ""
        os.write(self.fd, text.encode())

    def end(self, status):
        """It has ended so, and the terminal is as it was."""
        self.expect(MAIN)
        self.expect(CURSOR)
        _, ended = os.waitpid(self.pid, 0)
        assert ended == status, (ended, self.written)
        assert termios.tcgetattr(self.other) == self.before, "the terminal's modes"
        os.close(self.fd)
        os.close(self.other)


for columns, lines in [(80, 24), (40, 12)]:
    began = time.monotonic()
    terminal = Terminal(columns, lines)
    terminal.expect(ALTERNATE)
    terminal.expect(sys.argv[2])
    assert time.monotonic() - began < PATIENCE_S
    if sys.argv[3:]:
        terminal.expect_shown("2 of 2 donors up")
        terminal.type("p")
        terminal.expect_shown("PROMISED" if columns == 80 else "promised")
        terminal.type("q")
        terminal.expect_shown("LOCAL")
        terminal.type("q")
        terminal.end(0)
        continue
    terminal.type("?")
    terminal.expect("Columns")
    terminal.type("x")
    terminal.expect("LOCAL")
    terminal.type("\r")
    terminal.expect("faults")
    terminal.type("q")
    terminal.expect("LOCAL")
    terminal.type("sssss")
    if columns == 80:
        terminal.expect("P99")
    terminal.type("q")
    terminal.end(0)

if sys.argv[3:]:
    print("whole")
    sys.exit()

terminal = Terminal(80, 24)
terminal.expect("LOCAL")
os.close(terminal.fd)  # the window is closed
os.close(terminal.other)
_, ended = os.waitpid(terminal.pid, 0)
assert ended in (0, 1 << 8, signal.SIGHUP), ended

terminal = Terminal(80, 24)
terminal.expect("LOCAL")
terminal.type("\x03")
terminal.end(0)

terminal = Terminal(80, 24)
terminal.expect("LOCAL")
os.kill(terminal.pid, signal.SIGTERM)
terminal.end(signal.SIGTERM)
print("whole")
