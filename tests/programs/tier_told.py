"""Answers as the daemon `spillway tier` does that has a status of its own: the same to everybody.
usage: tier_told.py SOCKET STATUS.json"""

import json
import socket
import sys

with open(sys.argv[2], encoding="utf-8") as file:
    status = json.load(file)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(8)
print("ready", flush=True)
asked = 0
while True:
    stream, _ = listener.accept()
    stream.recv(4096)
    asked += 1
    told = {"version": 1, "spillway_version": "1.2.3", "pid": 7, "uid": 0, "name": "tier", "kind": "tier"}
    told.update({"uptime_s": 5.0 + asked, "tier": status})
    stream.sendall((json.dumps({"ok": told}) + "\n").encode())
    stream.close()
