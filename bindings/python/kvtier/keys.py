# SPDX-License-Identifier: Apache-2.0
"""Keys of a job in one buffer, as the library takes them."""
from __future__ import annotations

import ctypes
import sys
from array import array
from itertools import accumulate
from typing import Iterable, List, Sequence, Tuple, Union

from .errors import InvalidArgumentError

BytesLike = Union[bytes, bytearray, memoryview]
Groups = Union[int, Sequence[int]]

_GROUP_SHIFT, _LENGTH_SHIFT = (32, 0) if sys.byteorder == "little" else (0, 32)


class PackedKeys:
    """The keys of one job: an array of ``struct kvt_key`` and the bytes that it points to.

    Built once, it can be submitted any number of times (a lookup, then a load), by any thread. All
    calls that take keys take a sequence of ``bytes`` too and pack it on the way.
    """

    __slots__ = ("_entries", "_data", "_count")

    def __init__(self, entries: "array[int]", data: object, count: int) -> None:
        self._entries = entries
        self._data = data
        self._count = count

    @classmethod
    def pack(cls, hashes: Sequence[BytesLike], groups: Groups = 0) -> "PackedKeys":
        """Keys from one bytes object for each hash, and one group for all or one for each."""
        data = b"".join(hashes)
        lengths = list(map(len, hashes))
        count = len(lengths)
        if count and lengths.count(lengths[0]) == count:
            return cls._uniform(data, lengths[0], count, groups)
        return cls._mixed(data, lengths, groups)

    @classmethod
    def from_buffer(cls, data: BytesLike, lengths: Union[int, Iterable[int]],
                    groups: Groups = 0) -> "PackedKeys":
        """Keys that lie one after the other in `data`: all of `lengths` bytes, or of these
        lengths. `data` is copied unless it is ``bytes``."""
        data = bytes(data)
        if isinstance(lengths, int):
            if lengths <= 0 or len(data) % lengths:
                raise InvalidArgumentError(
                    "keys: %d bytes in keys of %d, expected a multiple" % (len(data), lengths))
            return cls._uniform(data, lengths, len(data) // lengths, groups)
        lengths = list(lengths)
        if sum(lengths) != len(data) or (lengths and min(lengths) < 0):
            raise InvalidArgumentError("keys: lengths add up to %d, expected the buffer's %d bytes"
                                       % (sum(lengths), len(data)))
        return cls._mixed(data, lengths, groups)

    @classmethod
    def _uniform(cls, data: bytes, length: int, count: int, groups: Groups) -> "PackedKeys":
        if count == 0:
            return cls(array("Q"), data, 0)
        base = ctypes.cast(data, ctypes.c_void_p).value or 0
        entries = array("Q", bytes(16 * count))
        entries[0::2] = array("Q", range(base, base + count * length, length) if length
                              else [base] * count)
        entries[1::2] = cls._words([length] * count if not isinstance(groups, int) else length,
                                   groups, count)
        return cls(entries, data, count)

    @classmethod
    def _mixed(cls, data: bytes, lengths: List[int], groups: Groups) -> "PackedKeys":
        count = len(lengths)
        if count == 0:
            return cls(array("Q"), data, 0)
        base = ctypes.cast(data, ctypes.c_void_p).value or 0
        entries = array("Q", bytes(16 * count))
        entries[0::2] = array("Q", accumulate([base] + lengths[:-1]))
        entries[1::2] = cls._words(lengths, groups, count)
        return cls(entries, data, count)

    @staticmethod
    def _words(lengths: Union[int, List[int]], groups: Groups, count: int) -> "array[int]":
        """hash_bytes and group of each key in one word."""
        try:
            if isinstance(groups, int):
                group = array("I", [groups])[0] << _GROUP_SHIFT
                if isinstance(lengths, int):
                    return array("Q", [group | lengths << _LENGTH_SHIFT]) * count
                return array("Q", [group | n << _LENGTH_SHIFT for n in lengths])
            checked = array("I", groups)
        except OverflowError:
            raise InvalidArgumentError("groups: expected numbers from 0 to 2^32 - 1") from None
        if len(checked) != count:
            raise InvalidArgumentError("groups: %d numbers, expected one for each of %d keys"
                                       % (len(checked), count))
        assert not isinstance(lengths, int)
        return array("Q", [g << _GROUP_SHIFT | n << _LENGTH_SHIFT
                           for g, n in zip(checked, lengths)])

    @property
    def address(self) -> int:
        """Of the array of ``struct kvt_key``; 0 for no keys. Valid as long as this object."""
        return self._entries.buffer_info()[0] if self._count else 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tuple[bytes, int]:
        """The hash and the group of one key."""
        if not -self._count <= index < self._count:
            raise IndexError(index)
        index %= self._count
        word = self._entries[2 * index + 1]
        return (ctypes.string_at(self._entries[2 * index],
                                 word >> _LENGTH_SHIFT & 0xffffffff),
                word >> _GROUP_SHIFT & 0xffffffff)


Keys = Union[PackedKeys, Sequence[BytesLike]]


def as_packed(keys: Keys, groups: Groups = 0) -> PackedKeys:
    """`keys` as they are when they are packed already (`groups` is theirs then)."""
    if type(keys) is PackedKeys:
        return keys
    if isinstance(keys, (bytes, bytearray, memoryview, str)):
        raise InvalidArgumentError("keys: one %s, expected a sequence of bytes"
                                   % type(keys).__name__)
    return PackedKeys.pack(keys, groups)
