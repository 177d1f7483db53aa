# SPDX-License-Identifier: Apache-2.0
"""The secondary tier: lookups, stores, loads, failures and the end."""
import os

import pytest

from kvtier import JobKind, Status
from kvtier.vllm import _lookups
from scene import (HIT, MISS, RETRY, ROW_BYTES, Gate, Scene, context, in_thread, keys_of,
                   objects_below)


@pytest.fixture
def scene(place):
    with Scene(store=place.uri, options=place.options) as made:
        yield made


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path)


def held(root, gate, op, **config):
    """A tier whose requests of one kind wait for the gate."""
    options = dict(config.pop("options", {}), stuck="%s:%s" % (op, gate.path))
    return Scene(store="fault+file://%s" % root, options=options, **config)


def opened(root, gate, op, **config):
    """As held, started with the gate open: the self test at the start passes it too."""
    gate.open()
    made = held(root, gate, op, **config)
    gate.shut()
    return made


# ---- the way there and back ----


def test_chunks_that_were_stored_are_found_and_loaded(scene):
    keys = keys_of(8)
    assert scene.look_up(keys) == [MISS] * 8
    assert scene.store(keys).success
    assert scene.look_up(keys, "another") == [HIT] * 8
    result = scene.load(keys)
    assert result.success
    assert result.transfer_bytes == 8 * ROW_BYTES
    assert result.transfer_time > 0


def test_a_job_may_have_any_collection_of_keys_and_any_rows(scene):
    keys = keys_of(3)
    job = scene.job(dict.fromkeys(keys).keys(), scene.rows(keys, 5), False)
    job.chunk_ids = job.chunk_ids.astype("int32")
    scene.tier.submit_store(job)
    assert scene.finish(job.job_id).success
    assert scene.load(list(reversed(keys))).success


def test_groups_and_hashes_of_other_lengths_are_other_chunks(scene):
    keys = keys_of(2) + keys_of(2, group=7) + [b"short" + bytes(4)]
    assert scene.store(keys).success
    assert scene.look_up(keys + keys_of(2, group=8)) == [HIT] * 5 + [MISS] * 2
    assert scene.load(keys).success


def test_a_job_without_keys_is_reported_too(scene):
    assert scene.finish(scene.submit_store([])).success
    assert scene.finish(scene.submit_load([])).success


def test_chunks_that_are_there_are_not_stored_again(root):
    keys = keys_of(4)
    with Scene(store="file://%s" % root) as scene:
        assert scene.store(keys[:2]).success
        before = {path: os.stat(path).st_ino for path in objects_below(root)}
        assert scene.store(keys).success
        after = {path: os.stat(path).st_ino for path in objects_below(root)}
        assert len(after) == 4
        assert all(after[path] == inode for path, inode in before.items())


# ---- lookups ----


def test_the_questions_of_a_step_are_one_job(scene):
    before = scene.tier._worker.stats().jobs_submitted
    keys = keys_of(50)
    for request in ("one", "two"):
        assert {scene.tier.lookup(key, context(request)) for key in keys} == {RETRY}
    assert scene.tier._worker.stats().jobs_submitted == before
    scene.tier.on_schedule_end()
    assert scene.tier._worker.stats().jobs_submitted == before + 1
    assert scene.look_up(keys, "one") == [MISS] * 50
    assert scene.look_up(keys, "two") == [MISS] * 50
    stats = scene.tier._worker.stats()
    assert stats.jobs_submitted == before + 1
    assert stats.count(JobKind.LOOKUP, *Status) == 50, "what two requests ask for is asked once"


def test_a_verdict_holds_until_its_request_ends(scene):
    keys = keys_of(2)
    assert scene.store(keys[:1]).success
    assert scene.look_up(keys, "early") == [HIT, MISS]
    assert scene.store(keys, 4).success
    assert scene.look_up(keys, "early") == [HIT, MISS]
    assert scene.look_up(keys, "late") == [HIT, HIT]
    scene.end("early")
    assert scene.look_up(keys, "early") == [HIT, HIT]


def test_a_key_whose_store_is_under_way_is_asked_for_again(root, gate):
    keys = keys_of(3)
    with opened(root, gate, "put") as scene:
        job = scene.submit_store(keys)
        for _ in range(5):
            assert {scene.tier.lookup(key, context()) for key in keys} == {RETRY}
            scene.tier.on_schedule_end()
            scene.tier._worker.wait(list(scene.tier._asked))
            assert list(scene.tier.get_finished_jobs()) == []
        gate.open()
        assert scene.finish(job).success
        assert scene.look_up(keys) == [HIT] * 3


def test_no_request_waits_longer_for_a_verdict_than_it_may(root, gate):
    keys = keys_of(2)
    now = [1000.0]
    with opened(root, gate, "head", lookup_timeout_s=600) as scene:
        scene.tier._lookups = _lookups.Lookups(5.0, lambda: now[0])
        assert {scene.tier.lookup(key, context()) for key in keys} == {RETRY}
        scene.tier.on_schedule_end()
        now[0] += 4.9
        assert {scene.tier.lookup(key, context()) for key in keys} == {RETRY}
        now[0] += 0.2
        assert {scene.tier.lookup(key, context()) for key in keys} == {MISS}
        gate.open()
        scene.tier.drain_jobs()
        scene.tier.get_finished_jobs()
        assert {scene.tier.lookup(key, context()) for key in keys} == {MISS}
        assert scene.look_up(keys, "another") == [MISS] * 2


def test_a_request_that_ended_before_its_answers_leaves_nothing(scene):
    keys = keys_of(4)
    assert scene.tier.lookup(keys[0], context()) is RETRY
    scene.tier.on_schedule_end()
    scene.end()
    scene.tier.drain_jobs()
    scene.tier.get_finished_jobs()
    assert not scene.tier.has_pending_work()


def test_a_store_that_cannot_be_asked_is_a_miss(root, gate):
    gate.open()
    options = {"while": "head:%s:EACCES" % gate.path}
    with Scene(store="fault+file://%s" % root, options=options) as scene:
        gate.shut()
        assert scene.look_up(keys_of(3)) == [MISS] * 3


# ---- failures ----


def flip_a_byte(path):
    with open(path, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))


def test_one_bad_chunk_does_not_spoil_the_others(root):
    keys = keys_of(5)
    with Scene(store="file://%s" % root) as scene:
        assert scene.store(keys).success
        assert scene.look_up(keys, "one") == [HIT] * 5
        assert scene.look_up(keys, "two") == [HIT] * 5
        name = keys[2][:-4].hex() + ".bin"
        flip_a_byte(next(path for path in objects_below(root) if path.endswith(name)))
        result = scene.load(keys)
        assert not result.success
        assert list(result.successful_keys) == keys[:2] + keys[3:]
        # Otherwise the requests would ask for the same load for ever.
        for request in ("one", "two"):
            assert scene.look_up(keys, request) == [HIT, HIT, MISS, HIT, HIT]
        assert scene.store(keys, 8).success
        assert scene.look_up(keys, "three") == [HIT] * 5
        assert scene.load(keys).success


def test_a_chunk_that_went_away_is_a_miss_after_its_load_failed(root):
    keys = keys_of(2)
    with Scene(store="file://%s" % root) as scene:
        assert scene.store(keys).success
        assert scene.look_up(keys) == [HIT, HIT]
        for path in objects_below(root):
            os.unlink(path)
        result = scene.load(keys)
        assert not result.success
        assert result.successful_keys is None
        assert scene.look_up(keys) == [MISS, MISS]


def test_a_store_that_fails_is_an_unsuccessful_result(root, gate):
    keys = keys_of(3)
    gate.open()
    options = {"while": "put:%s:ENOSPC" % gate.path}
    with Scene(store="fault+file://%s" % root, options=options) as scene:
        gate.shut()
        result = scene.store(keys)
        assert not result.success
        assert scene.look_up(keys) == [MISS] * 3
        assert not scene.tier.has_pending_work()


def test_a_full_queue_is_an_unsuccessful_result_and_no_exception(root, gate):
    with opened(root, gate, "put", queue_chunks=4, lanes=1, depth=1) as scene:
        jobs = [scene.submit_store(keys_of(4, "job%d-" % i)) for i in range(6)]
        refused = {r.job_id: r for r in scene.tier.get_finished_jobs()}
        assert refused and all(not result.success for result in refused.values())
        scene.seen.update(refused)
        gate.open()
        accepted = scene.collect(len(jobs) - len(refused))
        assert sorted([*accepted, *refused]) == jobs
        assert all(result.success for result in accepted.values())


def test_rows_that_do_not_exist_are_an_unsuccessful_result(scene):
    keys = keys_of(2)
    job = scene.job(keys, [0, 99], False)
    scene.tier.submit_store(job)
    assert not scene.finish(job.job_id).success
    job = scene.job(keys, [0], True)
    scene.tier.submit_load(job)
    assert not scene.finish(job.job_id).success


# ---- never waiting ----


def test_no_call_waits_for_a_store_that_does_not_answer(root, gate):
    """All of this happens before the gate opens."""
    keys = keys_of(10)
    gate.open()
    with Scene(store="fault+file://%s" % root,
               options={"stuck": "any:%s" % gate.path}) as scene:
        assert scene.store(keys_of(10, "old")).success
        gate.shut()
        tier = scene.tier
        jobs = [scene.submit_store(keys), scene.submit_load(keys_of(10, "old"))]
        for _ in range(20):
            tier.on_new_request(context())
            assert {tier.lookup(key, context()) for key in keys_of(3, "new")} == {RETRY}
            tier.on_schedule_end()
            assert list(tier.get_finished_jobs()) == []
            tier.touch(keys, context())
            tier.take_events()
            tier.get_stats()
            assert tier.has_pending_work()
        tier.on_request_finished(context())
        gate.open()
        assert sorted(scene.collect(2)) == jobs


# ---- draining and the end ----


def test_draining_loses_no_result(scene):
    jobs = [scene.submit_store(keys_of(4, "job%d-" % i), 4 * i) for i in range(8)]
    scene.tier.drain_jobs()
    results = {result.job_id: result for result in scene.tier.get_finished_jobs()}
    assert sorted(results) == jobs
    assert all(result.success for result in results.values())
    assert not scene.tier.has_pending_work()
    assert list(scene.tier.get_finished_jobs()) == []


def test_draining_waits_for_what_is_under_way(root, gate):
    with opened(root, gate, "put") as scene:
        job = scene.submit_store(keys_of(2))
        thread = in_thread(scene.tier.drain_jobs)
        gate.open()
        thread.join()
        assert [result.job_id for result in scene.tier.get_finished_jobs()] == [job]


def test_after_shutdown_nobody_touches_the_rows(root, gate):
    keys = keys_of(4)
    with Scene(store="file://%s" % root) as scene:
        assert scene.store(keys).success
    scene = opened(root, gate, "get", lanes=1, depth=1)
    scene.submit_load(keys, 0)
    done = []
    thread = in_thread(lambda: done.append(scene.tier.shutdown()))
    gate.open()
    thread.join()
    assert done == [None]
    scene.memory.mark_all()
    scene.memory.check_all()
    scene.memory.release()  # fails when anything of the rows is still exported


def test_a_tier_that_was_shut_down_answers_without_a_store(place):
    scene = Scene(store=place.uri, options=place.options)
    scene.tier.shutdown()
    scene.tier.shutdown()
    assert scene.look_up(keys_of(2)) == [MISS, MISS]
    assert not scene.store(keys_of(2)).success
    assert not scene.load(keys_of(2)).success
    scene.tier.drain_jobs()
    scene.memory.release()
