"""Makes a browser's picture small: a palette and no prediction, which suit text."""

import collections
import struct
import zlib


def with_palette(png: bytes) -> bytes:
    """Returns a PNG of 8-bit RGB with a palette of its 256 most important colours; others become the nearest of them."""
    width, height, rows = pixels(png)
    counts = collections.Counter(row[start:start + 3] for row in rows for start in range(0, 3 * width, 3))
    # A line in a colour of its own has few points.
    weights = {colour: count * (8 + max(colour) - min(colour)) for colour, count in counts.items()}
    palette = sorted(weights, key=weights.get, reverse=True)[:256]
    places = {colour: place for place, colour in enumerate(palette)}
    for colour in counts.keys() - places.keys():
        places[colour] = min(range(len(palette)), key=lambda place: sum(
            (one - other) ** 2 for one, other in zip(colour, palette[place])))
    data = b"".join(b"\0" + bytes(places[row[start:start + 3]] for start in range(0, 3 * width, 3)) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return png[:8] + b"".join(chunk(*each) for each in [
        (b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")])


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pixels(png):
    """The width, the height, and the rows of a PNG of 8-bit RGB."""
    position, data = 8, b""
    while position < len(png):
        length, kind = struct.unpack_from(">I4s", png, position)
        content = png[position + 8:position + 8 + length]
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", content)
            assert form == [8, 2, 0, 0, 0], form
        if kind == b"IDAT":
            data += content
        position += 12 + length
    data = zlib.decompress(data)
    rows, above = [], bytes(3 * width)
    for start in range(0, len(data), 3 * width + 1):
        above = unfiltered(data[start], data[start + 1:start + 1 + 3 * width], above)
        rows.append(bytes(above))
    return width, height, rows


def paeth(left, upper, corner):
    return min((left, upper, corner), key=lambda value: abs(left + upper - corner - value))


def unfiltered(kind, line, above):
    """Source: PNG, "Filter types for filter method 0"."""
    row = bytearray(3) + line  # with the pixel before the first
    above = bytes(3) + above
    for index in range(3, len(row)) if kind > 0 else ():
        left, upper = row[index - 3], above[index]
        row[index] = (row[index] + (
            left if kind == 1 else upper if kind == 2 else (left + upper) // 2 if kind == 3
            else paeth(left, upper, above[index - 3]))) & 255
    return row[3:]
