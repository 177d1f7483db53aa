# SPDX-License-Identifier: Apache-2.0
"""Verdicts of requests, and keys in the library's form."""
import random

import pytest

import kvtier
from kvtier.vllm import _lookups, _pack
from kvtier.vllm._lookups import HIT, MISS, RETRY, Lookups


class Asked:
    def __init__(self, max_wait_s=5.0):
        self.now = 100.0
        self.lookups = Lookups(max_wait_s, lambda: self.now)

    def ask(self, key, request="r"):
        return self.lookups.ask(request, key)

    def answer(self, **verdicts):
        keys, requests = self.lookups.take()
        self.lookups.answer(keys, requests, [verdicts[key.decode()] for key in keys])
        return [key.decode() for key in keys]


@pytest.fixture
def asked():
    return Asked()


def test_a_key_is_queued_once_for_each_request(asked):
    assert [asked.ask(b"a"), asked.ask(b"a"), asked.ask(b"a", "s")] == [RETRY] * 3
    assert len(asked.lookups) == 2
    assert asked.answer(a=HIT) == ["a", "a"]
    assert [asked.ask(b"a"), asked.ask(b"a", "s")] == [HIT] * 2
    assert not asked.lookups


def test_what_is_pending_is_asked_again_only_when_the_request_asks(asked):
    asked.ask(b"a")
    asked.answer(a=RETRY)
    assert not asked.lookups
    assert asked.ask(b"a") == RETRY
    assert asked.ask(b"a") == RETRY
    assert asked.answer(a=HIT) == ["a"]
    assert asked.ask(b"a") == HIT


def test_the_time_that_a_request_waits_counts_from_its_first_question(asked):
    for _ in range(5):
        assert asked.ask(b"a") == RETRY
        asked.answer(a=RETRY)
        asked.now += 1.2
    assert asked.ask(b"a") == MISS
    assert asked.lookups.timed_out == 1
    assert asked.ask(b"a", "later") == RETRY


def test_an_answer_that_comes_too_late_changes_nothing(asked):
    asked.ask(b"a")
    keys, requests = asked.lookups.take()
    asked.now += 6.0
    assert asked.ask(b"a") == MISS
    asked.lookups.answer(keys, requests, [HIT])
    assert asked.ask(b"a") == MISS


def test_a_failed_load_ends_the_hits_of_all_requests_but_not_of_later_ones(asked):
    for key in (b"a", b"b"):
        asked.ask(key)
        asked.ask(key, "s")
    asked.answer(a=HIT, b=HIT)
    asked.lookups.invalidate([b"a"])
    assert [asked.ask(b"a"), asked.ask(b"b")] == [MISS, HIT]
    assert [asked.ask(b"a", "s"), asked.ask(b"b", "s")] == [MISS, HIT]
    asked.ask(b"a", "t")
    asked.answer(a=HIT)
    assert asked.ask(b"a", "t") == HIT
    assert asked.ask(b"a") == MISS
    asked.lookups.invalidate([b"a"])
    assert asked.ask(b"a", "t") == MISS


def test_nothing_is_kept_when_no_request_lives(asked):
    asked.ask(b"a")
    asked.answer(a=HIT)
    asked.lookups.invalidate([b"a"])
    asked.lookups.end("r")
    asked.lookups.end("never there")
    assert not asked.lookups._requests and not asked.lookups._failed


def test_more_failures_than_are_remembered_end_all_hits(asked, monkeypatch):
    monkeypatch.setattr(_lookups, "_FAILED_KEYS", 3)
    for key in (b"a", b"b"):
        asked.ask(key)
    asked.answer(a=HIT, b=HIT)
    asked.lookups.invalidate([b"%d" % i for i in range(4)])
    assert asked.ask(b"a") == HIT
    asked.lookups.invalidate([b"z"])
    assert [asked.ask(b"a"), asked.ask(b"b")] == [MISS, MISS]


# ---- keys ----


def key(block_hash, group):
    return block_hash + group.to_bytes(4, "big")


@pytest.mark.parametrize("lengths", [[32] * 50, [1], [64] * 3, [32, 16, 1, 64]])
def test_keys_are_split_into_hash_and_group(lengths):
    chance = random.Random(5)
    parts = [(bytes(chance.randrange(256) for _ in range(n)), chance.randrange(2**32))
             for n in lengths]
    packed = _pack.pack([key(*part) for part in parts])
    assert len(packed) == len(parts)
    assert [packed[i] for i in range(len(parts))] == parts
    assert [_pack.split(key(*part)) for part in parts] == parts


def test_keys_may_come_in_any_collection():
    keys = dict.fromkeys(key(b"%d" % i, i) for i in range(5))
    assert len(_pack.pack(keys.keys())) == 5
    assert len(_pack.pack(())) == 0


@pytest.mark.parametrize("count", [1, 2, 100, 1024, 1025, 3000])
def test_keys_of_one_length_and_group_are_those_that_were_given(count):
    for group in (0, 1, 2**32 - 1):
        parts = [(b"%d" % i).ljust(32, b"h") for i in range(count)]
        packed = _pack.pack([key(part, group) for part in parts])
        assert [packed[i] for i in range(count)] == [(part, group) for part in parts]


def test_one_key_of_another_group_among_many_keeps_it():
    for place in range(4):
        groups = [7] * 20
        groups[11] ^= 1 << 8 * place
        packed = _pack.pack([key(b"h" * 32, group) for group in groups])
        assert [packed[i][1] for i in range(20)] == groups


def test_tables_are_not_kept_without_limit():
    for group in range(200):
        assert _pack.pack([key(b"hash", group)])[0] == (b"hash", group)
    assert len(_pack._tables) <= 64


@pytest.mark.parametrize("keys, index", [([b"abcd"], 0), ([b"hash" + bytes(4), b"abc"], 1)])
def test_a_key_without_a_hash_is_refused_by_number(keys, index):
    with pytest.raises(kvtier.InvalidArgumentError, match=r"keys\[%d\]: . bytes" % index):
        _pack.pack(keys)
