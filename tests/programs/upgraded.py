"""Fills memory, waits for SIGUSR1, then forks and begins a program anew: each finds its memory whole, and
says which file of Spillway's library it has. usage: upgraded.py [again]"""

import array
import os
import signal
import subprocess
import sys

NUMBERS = 2 << 20


def library():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        lines = [line.rstrip("\n") for line in maps if "libspillway_preload.so" in line]
    if not lines:
        return "no library"
    return "the old library" if lines[0].endswith(" (deleted)") else "the new library"


def look(who, memory):
    whole = all(number == at for at, number in enumerate(memory))
    print(f"{who}: {'whole' if whole else 'WRONG'}, {library()}", flush=True)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
memory = array.array("Q", range(NUMBERS))
if sys.argv[1:] == ["again"]:
    look("begun anew", memory)
    sys.exit()
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
child = os.fork()
if child == 0:
    look("forked", memory)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
subprocess.run([sys.executable, __file__, "again"], check=True)
look("the first", memory)
