# SPDX-License-Identifier: Apache-2.0
"""What a tier tells: KV events, metrics, and which chunks are in use."""
import logging
import os
import time

from kvtier.simulate import spec_like
from kvtier.vllm import KvTierSecondaryTier, _metrics
from kvtier.vllm import _standalone as plain
from scene import HIT, TIMEOUT_S, Gate, Scene, context, keys_of, objects_below


def events_of(scene):
    return [(event.keys, event.removed) for event in scene.tier.take_events()]


def test_what_was_stored_is_an_event(place):
    keys = keys_of(3)
    with Scene(store=place.uri, options=place.options, enable_kv_events=True,
               locality="REMOTE") as scene:
        assert scene.store(keys).success
        (event,) = scene.tier.take_events()
        assert (event.keys, event.removed) == (keys, False)
        assert event.medium is plain.Medium.STORAGE
        assert event.locality is plain.Locality.REMOTE
        assert list(scene.tier.take_events()) == []
        assert scene.load(keys).success
        assert events_of(scene) == []


def test_what_a_load_finds_gone_is_an_event(tmp_path):
    keys = keys_of(3)
    with Scene(root_dir=str(tmp_path), enable_kv_events=True) as scene:
        assert scene.store(keys).success
        assert events_of(scene) == [(keys, False)]
        name = keys[1][:-4].hex() + ".bin"
        os.unlink(next(path for path in objects_below(tmp_path) if path.endswith(name)))
        assert not scene.load(keys).success
        assert events_of(scene) == [([keys[1]], True)]


def test_a_store_that_failed_is_no_event(tmp_path):
    gate = Gate(tmp_path)
    gate.open()
    with Scene(store="fault+file://%s" % (tmp_path / "store"), enable_kv_events=True,
               options={"while": "put:%s:ENOSPC" % gate.path}) as scene:
        gate.shut()
        assert not scene.store(keys_of(2)).success
        assert events_of(scene) == []


def test_events_that_nobody_takes_are_not_made(caplog):
    spec = spec_like()
    spec.kv_events_config.enable_kv_cache_events = False
    with caplog.at_level(logging.WARNING), Scene(
            spec=spec, store="mem:", enable_kv_events=True) as scene:
        assert scene.store(keys_of(2)).success
        assert events_of(scene) == []
    assert "publishes no KV events" in caplog.text


def test_every_metric_is_labelled_by_tier():
    definitions = KvTierSecondaryTier.build_metric_definitions({})
    assert set(definitions) == {_metrics.PREFIX + name for name in _metrics.DEFINITIONS}
    for definition in definitions.values():
        assert definition.labelnames[0] == "tier"
        assert definition.documentation


def test_metrics_tell_what_was_done(place):
    with Scene(store=place.uri, options=place.options, metrics_label="far") as scene:
        keys = keys_of(4)
        scene.look_up(keys)
        assert scene.store(keys).success
        assert scene.store(keys).success
        assert scene.load(keys).success
        stats = scene.tier.get_stats()
        counted = stats.counters[_metrics.PREFIX + "keys"]
        assert counted == {
            ("far", "lookup", "miss"): 4,
            ("far", "store", "stored"): 4,
            ("far", "store", "skipped"): 4,
            ("far", "load", "loaded"): 4,
        }
        assert stats.counters[_metrics.PREFIX + "requests"][("far",)] > 0
        assert stats.gauges[_metrics.PREFIX + "jobs"] == {("far",): 0}
        assert len(stats.histograms[_metrics.PREFIX + "job_seconds"][("far", "store")]) == 2
        # What has been told is not told again.
        again = scene.tier.get_stats()
        assert again is None or _metrics.PREFIX + "keys" not in again.counters


def test_metrics_have_the_labels_that_were_defined(place):
    with Scene(store=place.uri, options=place.options) as scene:
        scene.look_up(keys_of(2))
        scene.store(keys_of(2))
        scene.load(keys_of(4))
        stats = scene.tier.get_stats()
        definitions = KvTierSecondaryTier.build_metric_definitions()
        for kind in (stats.counters, stats.gauges, stats.histograms):
            for name, series in kind.items():
                for labels in series:
                    assert len(labels) == len(definitions[name].labelnames), name
                    assert labels[0] == "KvTierSecondaryTier:" + place.uri


def test_refused_jobs_are_counted(tmp_path):
    gate = Gate(tmp_path)
    gate.open()
    with Scene(store="fault+file://%s" % (tmp_path / "store"), queue_chunks=2, lanes=1, depth=1,
               metrics_label="t", options={"stuck": "put:%s" % gate.path}) as scene:
        gate.shut()
        for i in range(8):
            scene.submit_store(keys_of(2, "job%d-" % i))
        refused = len(list(scene.tier.get_finished_jobs()))
        assert refused > 0
        counted = scene.tier.get_stats().counters[_metrics.PREFIX + "refused_jobs"]
        assert counted == {("t", "store"): refused}
        gate.open()


def test_failures_are_told_but_not_each_of_them(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), Scene(root_dir=str(tmp_path)) as scene:
        for i in range(5):
            assert not scene.load(keys_of(1, "absent%d-" % i)).success
    lines = [record for record in caplog.records if "load of 1 keys" in record.getMessage()]
    assert len(lines) == 1 and "absent0-".encode().hex() in lines[0].getMessage()


def test_chunks_in_use_are_touched_where_the_store_has_a_limit(tmp_path):
    keys = keys_of(3)
    with Scene(root_dir=str(tmp_path), options={"max_bytes": "1G"}) as scene:
        assert scene.store(keys).success
        paths = objects_below(tmp_path)
        for path in paths:
            os.utime(path, (1, 1))
        scene.tier.touch(keys[:2] + keys_of(1, "absent"), context())
        deadline = time.monotonic() + TIMEOUT_S
        while sum(os.stat(path).st_atime > 1 for path in paths) < 2:
            assert time.monotonic() < deadline
        touched = {os.path.basename(p)[:-4] for p in paths if os.stat(p).st_atime > 1}
        assert touched == {key[:-4].hex() for key in keys[:2]}
        assert all(os.stat(path).st_mtime == 1 for path in paths)


def test_a_chunk_is_touched_once_in_an_interval(tmp_path):
    keys = keys_of(2)
    with Scene(root_dir=str(tmp_path), options={"max_bytes": "1G"}) as scene:
        assert scene.store(keys).success
        toucher = scene.tier._toucher
        scene.tier.touch(keys, context())
        scene.tier.touch(keys, context())
        toucher._queue.join()
        for path in objects_below(tmp_path):
            os.utime(path, (1, 1))
        scene.tier.touch(keys, context())
        toucher._queue.join()
        assert all(os.stat(path).st_atime == 1 for path in objects_below(tmp_path))


def test_touching_is_harmless_where_nothing_keeps_it(place):
    with Scene(store=place.uri, options=place.options) as scene:
        keys = keys_of(2)
        scene.tier.touch(keys, context())
        assert scene.store(keys).success
        scene.tier.touch(keys, context())
        assert scene.look_up(keys) == [HIT, HIT]
