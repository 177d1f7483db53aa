# SPDX-License-Identifier: Apache-2.0
"""vLLM's OffloadKeys in the form that the library takes.

An OffloadKey is the block hash followed by the group as four bytes, big-endian. A submit call on
the scheduler's thread has microseconds for a hundred of them, so that no step here is a Python
loop as long as all keys are of one length, which they are.
"""
from __future__ import annotations

from array import array
from typing import Collection, List, Tuple

import numpy

from ..errors import InvalidArgumentError
from ..keys import PackedKeys

GROUP_BYTES = 4
# struct kvt_key
_KEY = numpy.dtype([("hash", "u8"), ("hash_bytes", "u4"), ("group", "u4")])


def _bad_length(index: int, key: bytes) -> InvalidArgumentError:
    return InvalidArgumentError(
        "keys[%d]: %d bytes, expected a hash and a group of %d" % (index, len(key), GROUP_BYTES)
    )


def split(key: bytes) -> Tuple[bytes, int]:
    """The hash and the group of one OffloadKey."""
    return key[:-GROUP_BYTES], int.from_bytes(key[-GROUP_BYTES:], "big")


def pack(keys: Collection[bytes]) -> PackedKeys:
    """All keys of a job at once, in their order."""
    if type(keys) is not list:
        keys = list(keys)
    count = len(keys)
    if count == 0:
        return PackedKeys(array("Q"), b"", 0)
    length = len(keys[0])
    joined = b"".join(keys)
    if len(joined) != length * count or list(map(len, keys)).count(length) != count:
        return _pack_mixed(keys)
    if length <= GROUP_BYTES:
        raise _bad_length(0, keys[0])
    flat = numpy.frombuffer(joined, dtype=numpy.uint8)
    first = flat.__array_interface__["data"][0]
    table = numpy.empty(count, dtype=_KEY)
    table["hash"] = numpy.arange(first, first + count * length, length, dtype=numpy.uint64)
    table["hash_bytes"] = length - GROUP_BYTES
    table["group"] = flat.reshape(count, length)[:, -GROUP_BYTES:].copy().view(">u4").ravel()
    entries = array("Q")
    entries.frombytes(table.tobytes())
    return PackedKeys(entries, joined, count)


def _pack_mixed(keys: List[bytes]) -> PackedKeys:
    for index, key in enumerate(keys):
        if len(key) <= GROUP_BYTES:
            raise _bad_length(index, key)
    parts = [split(key) for key in keys]
    return PackedKeys.pack([part[0] for part in parts], [part[1] for part in parts])
