# SPDX-License-Identifier: Apache-2.0
"""The tier in every generation of vLLM's interfaces, driven as that generation's scheduler does."""
import abc
import importlib
import logging
import sys
import types

import pytest

import generations
from kvtier import vllm_plugin
from kvtier.simulate import Primary, Scheduler, spec_like, trace
from scene import Gate, keys_of


@pytest.fixture(params=generations.NAMES)
def generation(request):
    with generations.installed(generations.build(request.param)) as made:
        yield made


@pytest.fixture
def newest():
    with generations.installed(generations.build(generations.NAMES[-1])) as made:
        yield made


def create(generation, memory, **config):
    config.setdefault("type", "KvTierSecondaryTier")
    config.setdefault("module_path", "kvtier.vllm")
    return generation.create_tier(config, spec_like(), memory.view)


def requests(count):
    return [[trace.key_of(block) for block in blocks] for blocks in trace.made_up(count, 3)]


def scheduler_of(generation, tier, memory, **options):
    return Scheduler(tier, memory, interface=generation.interface, **options)


def test_a_tier_is_loaded_by_configuration_alone_and_keeps_the_contract(generation, place):
    memory = Primary(64, 4096)
    config = {"store": place.uri, "options": place.options}
    tier = create(generation, memory, **config)
    assert tier.tier_type == "KvTierSecondaryTier"
    scheduler = scheduler_of(generation, tier, memory, abort_share=0.1, reset_every=15)
    scheduler.run(requests(40))
    totals = scheduler.totals
    assert totals.stores > 0 and totals.failed_stores == totals.failed_loads == 0
    # A second engine on the same store finds what the first one has stored.
    other_memory = Primary(64, 4096)
    other = scheduler_of(generation, create(generation, other_memory, **config), other_memory)
    other.run(requests(40))
    assert other.totals.loads > 0 and other.totals.failed_loads == 0
    scheduler.shutdown()
    other.shutdown()


def test_no_step_waits_for_a_store_that_does_not_answer(generation, tmp_path):
    """The steps are over before the gate opens."""
    gate = Gate(tmp_path)
    gate.open()
    memory = Primary(64, 4096)
    tier = create(generation, memory, store="fault+file://%s" % (tmp_path / "store"),
                  options={"stuck": "any:%s" % gate.path}, max_wait_s=600)
    gate.shut()
    scheduler = scheduler_of(generation, tier, memory)
    for keys in requests(8):
        scheduler.admit(keys)
    for _ in range(10):
        scheduler.step()
    assert scheduler.totals.found_chunks == scheduler.totals.stores == 0
    gate.open()
    scheduler.run([])
    assert scheduler.totals.stores > 0 and scheduler.jobs_under_way == 0
    scheduler.shutdown()


def test_results_have_the_fields_that_the_generation_knows(generation):
    memory = Primary(8, 4096)
    tier = create(generation, memory, store="mem:")
    scheduler = scheduler_of(generation, tier, memory)
    scheduler.admit(keys_of(4))
    seen = []
    while not seen:
        scheduler.step()
        tier._worker.drain()
        seen = scheduler.collect()
    known = {"v0.22": set(), "2026-07": {"successful_keys", "transfer_time"}}
    known["2026-08"] = known["2026-07"] | {"transfer_size"}
    known["2026-09"] = known["2026-07"] | {"transfer_bytes"}
    fields = vars(seen[0])
    assert set(fields) == {"job_id", "success"} | known[generation.name]
    assert fields.get("transfer_size", 4 * 4096) == 4 * 4096
    assert fields.get("transfer_bytes", 4 * 4096) == 4 * 4096
    scheduler.shutdown()


def test_metrics_are_those_classes_that_the_generation_has(generation):
    tier = importlib.import_module("kvtier.vllm").KvTierSecondaryTier
    definitions = tier.build_metric_definitions({})
    if generation.name == "v0.22":
        assert definitions == {}
    else:
        assert {type(d).__module__ for d in definitions.values()} != set()
        assert all(d.labelnames[0] == "tier" for d in definitions.values())


def test_the_detector_that_the_factory_passes_reaches_the_base_and_no_warning(generation, caplog):
    memory = Primary(4, 4096)
    with caplog.at_level(logging.WARNING):
        tier = create(generation, memory, store="mem:", hash_seed="0")
    passed = generation.passes.get("backpressure_detector")
    assert getattr(tier, "bp_detector", None) is passed
    assert "ignored" not in caplog.text
    tier.shutdown()


def test_lines_go_to_vllms_logger(newest):
    module = importlib.import_module("kvtier.vllm.tier")
    assert module.logger.name == "vllm.kvtier.vllm.tier"


def test_a_method_that_is_not_known_fails_at_import_by_name():
    made = generations.build(generations.NAMES[-1])
    base = made.modules["vllm.v1.kv_offload.tiering.base"]

    class Newer(base.SecondaryTierManager):
        @abc.abstractmethod
        def rebalance(self): ...

    base.SecondaryTierManager = Newer
    with generations.installed(made), pytest.raises(ImportError, match="wants rebalance"):
        importlib.import_module("kvtier.vllm")


def test_a_constructor_argument_that_is_not_known_fails_by_name(newest):
    base = newest.tier_base.__mro__[1]
    was = base.__init__

    def init(self, offloading_spec, primary_kv_view, tier_type, topology):
        was(self, offloading_spec, primary_kv_view, tier_type)

    newest.tier_base.__init__ = init
    memory = Primary(4, 4096)
    with pytest.raises(TypeError, match="must be given 'topology'"):
        create(newest, memory, store="mem:")
    memory.release()


def test_a_vllm_without_tiers_fails_at_import_with_its_version():
    made = generations.build("v0.22")
    del made.modules["vllm.v1.kv_offload.tiering.base"]
    with generations.installed(made), pytest.raises(ImportError, match="vLLM v0.22 has no .*Secon"):
        importlib.import_module("kvtier.vllm")


def test_a_vllm_that_fails_to_import_is_not_taken_for_an_absent_one(newest, monkeypatch):
    def broken(name, package=None):
        if name == "vllm.v1.kv_offload.base":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return importlib.__import__(name, fromlist=["x"])

    import kvtier.vllm._compat as compat

    monkeypatch.setattr(compat.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="torch"):
        compat._find("LookupResult", compat._BASE)


def test_a_job_without_rows_that_are_known_is_refused_by_name(newest):
    compat = importlib.import_module("kvtier.vllm._compat")
    with pytest.raises(TypeError, match="neither chunk_ids nor block_ids"):
        compat.row_ids(object())


def test_the_entry_point_makes_the_tier_known_by_a_short_name(newest):
    known = {}

    class SecondaryTierFactory:
        _registry = known

        @classmethod
        def register_tier(cls, name, module, class_name):
            if name in known:
                raise ValueError("Tier '%s' is already registered." % name)
            known[name] = (module, class_name)

    vllm_plugin.register()  # a release without tiers is none of its business
    module = types.ModuleType("vllm.v1.kv_offload.tiering.factory")
    module.SecondaryTierFactory = SecondaryTierFactory
    sys.modules[module.__name__] = module
    vllm_plugin.register()
    vllm_plugin.register()
    assert known == {"kvtier": ("kvtier.vllm", "KvTierSecondaryTier")}
    path, name = known["kvtier"]
    assert issubclass(getattr(importlib.import_module(path), name), newest.tier_base)
