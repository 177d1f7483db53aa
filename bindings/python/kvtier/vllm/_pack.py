# SPDX-License-Identifier: Apache-2.0
"""vLLM's OffloadKeys in the form that the library takes.

An OffloadKey is the block hash followed by the group as four bytes, big-endian. A submit call on
the scheduler's thread has microseconds for a hundred of them, after something else has had the
caches: so there is no loop over keys here as long as they have one length and one group, which
those of a job nearly always do, and as few calls as possible.
"""
from __future__ import annotations

import ctypes
import sys
import threading
from array import array
from typing import Collection, Dict, List, Tuple

import numpy

from ..errors import InvalidArgumentError
from ..keys import PackedKeys

GROUP_BYTES = 4
_MOST_KEYS = 1024
_MOST_TABLES = 64
# struct kvt_key of keys that lie one after the other from address 0 on, by length and group.
_tables: Dict[bytes, numpy.ndarray] = {}


class _Local(threading.local):
    """What a thread adds to a table: the address and nothing."""

    def __init__(self) -> None:
        self.step = numpy.zeros(2, dtype=numpy.uint64)


_local = _Local()


def _address(data: bytes) -> int:
    return ctypes.cast(data, ctypes.c_void_p).value or 0


# Where the bytes of a bytes object are, seen from its id: asking ctypes each time costs a fifth of
# all that pack does.
_DATA_AT = _address(b"some bytes") - id(b"some bytes")
_DATA_AT_IS_FIXED = all(
    _address(probe) == id(probe) + _DATA_AT for probe in (b"", b"x", bytes(5000), b"other bytes")
)


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
    joined = b"".join(keys)
    length = len(keys[0])
    group = keys[0][-GROUP_BYTES:]
    if (
        count > _MOST_KEYS
        or length <= GROUP_BYTES
        or list(map(len, keys)).count(length) != count
        or joined[length - 4 :: length].count(group[:1]) != count
        or joined[length - 3 :: length].count(group[1:2]) != count
        or joined[length - 2 :: length].count(group[2:3]) != count
        or joined[length - 1 :: length].count(group[3:]) != count
    ):
        return _pack_mixed(keys)
    table = _tables.get(b"%d:%b" % (length, group))
    if table is None:
        table = _make_table(length, group)
    first = id(joined) + _DATA_AT if _DATA_AT_IS_FIXED else _address(joined)
    step = _local.step
    step[0] = first
    return PackedKeys(array("Q", (table[:count] + step).tobytes()), joined, count)


def _make_table(length: int, group: bytes) -> numpy.ndarray:
    word = ((length - GROUP_BYTES).to_bytes(4, sys.byteorder)
            + int.from_bytes(group, "big").to_bytes(4, sys.byteorder))
    table = numpy.empty((_MOST_KEYS, 2), dtype=numpy.uint64)
    table[:, 0] = numpy.arange(0, _MOST_KEYS * length, length, dtype=numpy.uint64)
    table[:, 1] = numpy.frombuffer(word, dtype=numpy.uint64)[0]
    if len(_tables) >= _MOST_TABLES:
        _tables.clear()
    _tables[b"%d:%b" % (length, group)] = table
    return table


def _pack_mixed(keys: List[bytes]) -> PackedKeys:
    for index, key in enumerate(keys):
        if len(key) <= GROUP_BYTES:
            raise _bad_length(index, key)
    parts = [split(key) for key in keys]
    return PackedKeys.pack([part[0] for part in parts], [part[1] for part in parts])
