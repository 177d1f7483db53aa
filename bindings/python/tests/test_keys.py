# SPDX-License-Identifier: Apache-2.0
"""Keys as the library takes them."""
import pytest

import kvtier
from kvtier import PackedKeys


def pairs(packed):
    return [packed[i] for i in range(len(packed))]


@pytest.mark.parametrize("groups,expected", [(0, [0, 0, 0]), (7, [7, 7, 7]),
                                             ([1, 2, 2**32 - 1], [1, 2, 2**32 - 1])])
def test_keys_of_one_length(groups, expected):
    hashes = [b"\0" * 32, b"\xff" * 32, bytes(range(32))]
    assert pairs(PackedKeys.pack(hashes, groups)) == list(zip(hashes, expected))


@pytest.mark.parametrize("groups,expected", [(3, [3, 3, 3]), ([5, 0, 9], [5, 0, 9])])
def test_keys_of_several_lengths_and_types(groups, expected):
    hashes = [b"a", bytearray(b"bcd"), memoryview(b"x" * 64)]
    assert pairs(PackedKeys.pack(hashes, groups)) == list(zip(map(bytes, hashes), expected))


def test_keys_in_one_buffer():
    assert pairs(PackedKeys.from_buffer(b"aabbcc", 2, 4)) == [(b"aa", 4), (b"bb", 4), (b"cc", 4)]
    assert pairs(PackedKeys.from_buffer(bytearray(b"abbccc"), [1, 2, 3], [0, 1, 0])) == [
        (b"a", 0), (b"bb", 1), (b"ccc", 0)]


def test_no_keys_and_indices_from_the_end():
    empty = PackedKeys.pack([])
    assert len(empty) == 0 and empty.address == 0
    assert len(PackedKeys.from_buffer(b"", [])) == 0
    packed = PackedKeys.pack([b"one", b"two"])
    assert packed[-1] == (b"two", 0)
    with pytest.raises(IndexError):
        packed[2]


@pytest.mark.parametrize("call", [
    lambda: PackedKeys.from_buffer(b"abc", 2),
    lambda: PackedKeys.from_buffer(b"abc", 0),
    lambda: PackedKeys.from_buffer(b"abc", [1, 1]),
    lambda: PackedKeys.from_buffer(b"abc", [4, -1]),
    lambda: PackedKeys.pack([b"a"], -1),
    lambda: PackedKeys.pack([b"a", b"b"], 2**32),
    lambda: PackedKeys.pack([b"a", b"b"], [1]),
    lambda: PackedKeys.pack([b"a", b"b"], [1, -1]),
])
def test_what_is_no_set_of_keys_is_refused(call):
    with pytest.raises(kvtier.InvalidArgumentError):
        call()


@pytest.mark.parametrize("keys", [b"one hash", "text", bytearray(b"x")])
def test_one_hash_is_not_taken_for_a_sequence_of_them(mem_worker, keys):
    with kvtier.Rows(bytearray(8), 8) as rows:
        with pytest.raises(kvtier.InvalidArgumentError, match="expected a sequence of bytes"):
            mem_worker.submit_store_rows(1, keys, rows, [0])


@pytest.mark.parametrize("key", [b"", b"x" * 65])
def test_keys_that_the_library_refuses_are_named(mem_worker, key):
    with kvtier.Rows(bytearray(16), 8) as rows:
        with pytest.raises(kvtier.InvalidArgumentError, match=r"keys\[1\]"):
            mem_worker.submit_store_rows(1, [b"good", key], rows, [0, 1])
        rows.close()
