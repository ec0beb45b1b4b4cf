"""Says what a PNG of 8 bits a channel shows: its size, how many colours, and how light it is on average, 0 to
255, as JSON. usage: picture.py FILE"""

import json
import struct
import sys
import zlib


def chunks(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at = 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12


def paeth(left, above, corner):
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner


def unfiltered(kind, line, before, step):
    for at in range(len(line)):
        left = line[at - step] if at >= step else 0
        above = before[at]
        corner = before[at - step] if at >= step else 0
        add = (0, left, above, (left + above) // 2, paeth(left, above, corner) if kind == 4 else 0)[kind]
        line[at] = (line[at] + add) & 255
    return line


data = open(sys.argv[1], "rb").read()
parts = list(chunks(data))
width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", dict(parts)[b"IHDR"])
assert (depth, interlaced) == (8, 0) and kind in (2, 6), (depth, kind, interlaced)
step = 3 if kind == 2 else 4
raw = zlib.decompress(b"".join(part for name, part in parts if name == b"IDAT"))
before = bytearray(width * step)
colours, light = set(), 0
for row in range(height):
    start = row * (width * step + 1)
    line = bytearray(raw[start + 1 : start + 1 + width * step])
    before = unfiltered(raw[start], line, before, step) if raw[start] else line
    colours.update(zip(before[0::step], before[1::step], before[2::step]))
    light += sum(before[0::step]) + sum(before[1::step]) + sum(before[2::step])
light /= 3 * width * height
print(json.dumps({"width": width, "height": height, "colours": len(colours), "light": light}))
