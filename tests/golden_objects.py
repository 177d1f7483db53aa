#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the objects of data/golden.json from their inputs, from the description of the format
alone: it shares no code with the library, not even the checksum.

    golden_objects.py GOLDEN.json FOLDER           write FOLDER/<name>.bin for each object
    golden_objects.py --check GOLDEN.json FOLDER   compare instead: with the files that are there,
                                                   and with the figures in GOLDEN.json
"""

import hashlib
import json
import os
import struct
import sys

PAGE = 4096


def crc32c(data):
    """CRC-32C, one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def namespace_digest(namespace):
    if not isinstance(namespace, str):
        namespace = json.dumps(namespace, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(namespace.encode()).digest()[:8]


def write_object(case):
    """The object's bytes, and those of its trailer before the padding."""
    blocks, sizes, key = case["blocks_per_chunk"], case["ref_sizes"], bytes.fromhex(case["key_hex"])
    slot_count = blocks * len(sizes)
    payload = bytearray(blocks * sum(sizes))
    table = [0] * slot_count
    presence = bytearray((slot_count + 7) // 8)
    for ref, slot, text in case["slots"]:
        data = bytes.fromhex(text)
        assert len(data) == sizes[ref]
        at = blocks * sum(sizes[:ref]) + slot * sizes[ref]
        payload[at : at + len(data)] = data
        index = ref * blocks + slot
        table[index] = crc32c(data)
        presence[index // 8] |= 1 << index % 8
    partial = len(case["slots"]) < slot_count
    head = b"".join(struct.pack("<I", crc) for crc in table) + bytes(presence)
    head += b"".join(struct.pack("<Q", size) for size in sizes) + key

    length = len(payload) + len(head) + 64
    length += -length % PAGE
    if partial:
        length += PAGE
    trailer_bytes = length - len(payload)
    padding = bytes(trailer_bytes - len(head) - 64)
    tail = struct.pack(
        "<8sHHIIIIIQQ8s",
        b"KVTIER1\n",
        1,
        int(partial),
        len(key),
        blocks,
        len(sizes),
        slot_count,
        case["rank"],
        len(payload),
        trailer_bytes,
        namespace_digest(case["namespace"]),
    )
    crc = crc32c(head + padding + tail + bytes(8))
    return bytes(payload) + head + padding + tail + struct.pack("<II", crc, 0), head


def check(case, data, head, path):
    """What is wrong, or None."""
    figures = (
        ("object_bytes", len(data)),
        ("object_sha256", hashlib.sha256(data).hexdigest()),
        ("trailer_head_hex", head.hex()),
        ("tail_hex", data[-64:].hex()),
    )
    for name, value in figures:
        if case[name] != value:
            return f"{name} is {case[name]}, computed {value}"
    with open(path, "rb") as file:
        if file.read() != data:
            return f"{path} holds other bytes"
    return None


def main(arguments):
    checking = arguments[:1] == ["--check"]
    if checking:
        arguments = arguments[1:]
    if len(arguments) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(bytes(PAGE)) == 0x98F94189
    with open(arguments[0], encoding="utf-8") as file:
        cases = json.load(file)
    status = 0
    for case in cases:
        data, head = write_object(case)
        path = os.path.join(arguments[1], case["name"] + ".bin")
        if checking:
            wrong = check(case, data, head, path)
            print(f"{case['name']}: {wrong or 'ok'}")
            status |= wrong is not None
        else:
            os.makedirs(arguments[1], exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
