# SPDX-License-Identifier: Apache-2.0
"""The declarations in Python against the headers, the export map and the C compiler."""
import ctypes
import os
import re
import shutil
import subprocess

import pytest

import kvtier
from kvtier import _abi, errors, results, store
from conftest import SOURCE

HEADERS = SOURCE / "include" / "kvtier"
needs_headers = pytest.mark.skipif(not HEADERS.exists(), reason="no headers at %s" % HEADERS)


def text_of(name):
    return (HEADERS / name).read_text(encoding="utf-8")


def enum_of(text, name):
    body = re.search(r"enum %s \{(.*?)\};" % name, text, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    values, value = {}, 0
    for item in filter(None, (part.strip() for part in body.split(","))):
        word, _, number = item.partition("=")
        value = int(number, 0) if number else value
        values[word.strip()] = value
        value += 1
    return values


@needs_headers
def test_codes_and_their_classes_are_those_of_the_header():
    text = text_of("error.h")
    codes = {name: (int(value), kind) for name, value, kind in
             re.findall(r'X\((E[A-Z0-9]+), (-\d+), ([A-Z]+), "', text)}
    assert len(codes) > 30
    assert {c.name: c.value for c in errors.Code if c} == {n: v for n, (v, _) in codes.items()}
    for name, (value, kind) in codes.items():
        error = kvtier.error_from_code(value)
        assert error.error_class.name == kind
        assert error.name == "KVT_" + name == _abi.lib.kvt_error_name(value).decode()
        assert _abi.lib.kvt_error_class(value) == error.error_class
        assert error.detail == _abi.lib.kvt_error_text(value).decode()


@needs_headers
def test_statuses_and_enumerations_are_those_of_the_header():
    text = text_of("kvtier.h")
    statuses = {name: int(value) for name, value in re.findall(r"X\(([A-Z_]+), (\d+),", text)}
    assert {s.name: s.value for s in results.Status} == statuses
    for prefix, enum, ours in (("KVT_JOB_", "kvt_job_kind", results.JobKind),
                               ("KVT_MODE_", "kvt_mode", store.Mode),
                               ("KVT_OBJECT_", "kvt_object_state", store.ObjectState),
                               ("KVT_LOG_", "kvt_log_level", store.LogLevel),
                               ("KVT_BREAKER_", "kvt_breaker_state", kvtier.Breaker)):
        assert {prefix + member.name: member.value for member in ours} == enum_of(text, enum)
    ready = enum_of(text_of("ready.h"), "kvt_ready_kind")
    assert kvtier.Ready.fd(0).kind == ready["KVT_READY_FD"]
    assert kvtier.Ready.event(0).kind == ready["KVT_READY_EVENT"]
    assert kvtier.Ready.stream(0).kind == ready["KVT_READY_STREAM"]


def test_which_statuses_are_a_success_is_what_the_library_says():
    library = ctypes.CDLL(kvtier.library_path)
    for status in results.Status:
        ours = results._TRANSFER_OK[status] or results._LOOKUP_OK[status]
        assert ours == library.kvt_status_is_success(int(status)), status
    assert not any(a and b for a, b in zip(results._TRANSFER_OK, results._LOOKUP_OK))


@needs_headers
def test_versions_agree():
    version = re.search(r'KVT_VERSION_STRING "([^"]+)"', text_of("version.h")).group(1)
    assert kvtier.__version__ == version == kvtier.library_version


def test_every_exported_function_is_declared_or_left_out_on_purpose():
    export_map = SOURCE / "src" / "kvtier.map"
    if not export_map.exists():
        pytest.skip("no %s" % export_map)
    exported = set(re.findall(r"^\t(kvt_\w+);", export_map.read_text(), re.M))
    declared = set(_abi._PROTOTYPES) | set(_abi._QUICK_PROTOTYPES)
    left_out = {"kvt_backend_register", "kvt_device_register", "kvt_error_exit_status",
                "kvt_status_name", "kvt_status_is_success"}
    assert exported == declared | left_out
    assert not declared & left_out


STRUCTURES = {
    "kvt_hooks": _abi.Hooks, "kvt_option": _abi.Option, "kvt_key": _abi.Key,
    "kvt_store_options": _abi.StoreOptions, "kvt_store_info": _abi.StoreInfo,
    "kvt_object_stat": _abi.ObjectStat, "kvt_list_entry": _abi.ListEntry,
    "kvt_verify_options": _abi.VerifyOptions, "kvt_verify_summary": _abi.VerifySummary,
    "kvt_verify_entry": _abi.VerifyEntry, "kvt_gc_options": _abi.GcOptions,
    "kvt_gc_summary": _abi.GcSummary, "kvt_device_options": _abi.DeviceOptions,
    "kvt_worker_options": _abi.WorkerOptions, "kvt_histogram": _abi.Histogram,
    "kvt_stats": _abi.Stats, "kvt_batch_result": _abi.BatchResult,
    "kvt_chunk_plan": _abi.ChunkPlan,
}
MEMBER_OF = {("kvt_hooks", "alloc"): "allocator.alloc", ("kvt_hooks", "free"): "allocator.free",
             ("kvt_hooks", "allocator_context"): "allocator.context"}
# Those that are packed by hand: members in order of the format.
PACKED = {
    "kvt_rows": (_abi.ROWS, "struct_size base stride_bytes row_count row_indices keys key_count"),
    "kvt_submit_options": (_abi.SUBMIT_OPTIONS,
                           "struct_size timeout_ms expedited lookup_flags ready.kind ready.fd "
                           "ready.handle"),
    "kvt_transfer": (_abi.TRANSFER,
                     "struct_size blocks_per_chunk group_count group_block_counts "
                     "group_data_ref_counts block_indices ptrs sizes copy_count keys key_count"),
    "kvt_geometry": (_abi.GEOMETRY, "struct_size blocks_per_chunk ref_count ref_bytes"),
    "kvt_result": (_abi.RESULT,
                   "job_id kind status error attempts bytes queued_ns active_ns key_count "
                   "key_status key_error detail key_blocks"),
    "kvt_file_op": (_abi.FILE_OP, "device_ptr size_bytes file_offset"),
    "kvt_file_ops": (_abi.FILE_OPS, "path ops op_count"),
}


def packed_offsets(form):
    """Where each member of a struct format lies: none of them has padding."""
    at, offsets = 0, []
    for count, code in re.findall(r"(\d*)([a-zA-Z])", form.format):
        for _ in range(int(count or 1)):
            offsets.append(at)
            at += _abi.struct.calcsize("=" + code)
    assert at == form.size
    return offsets


@needs_headers
def test_sizes_and_offsets_are_what_the_compiler_says(tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    expected, lines = {}, []

    def ask(name, expression, value):
        expected[name] = value
        lines.append('\tprintf("%%s %%zu\\n", "%s", (size_t)(%s));' % (name, expression))

    for name, ours in STRUCTURES.items():
        ask(name, "sizeof(struct %s)" % name, ctypes.sizeof(ours))
        for member, *_ in ours._fields_:
            spelt = MEMBER_OF.get((name, member), member)
            ask("%s.%s" % (name, spelt), "offsetof(struct %s, %s)" % (name, spelt),
                getattr(ours, member).offset)
    for name, (form, members) in PACKED.items():
        ask(name, "sizeof(struct %s)" % name, form.size)
        members = members.split()
        offsets = packed_offsets(form)
        assert len(members) == len(offsets), name
        for member, offset in zip(members, offsets):
            ask("%s.%s" % (name, member), "offsetof(struct %s, %s)" % (name, member), offset)
    ask("statuses", "KVT_STATUS_COUNT", _abi.STATUS_COUNT)
    ask("classes", "KVT_CLASS_COUNT", _abi.CLASS_COUNT)
    ask("name bytes", "KVT_NAME_BYTES", store.NAME_BYTES)
    source = tmp_path / "layout.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <kvtier/kvtier.h>\n"
                      "int main(void)\n{\n%s\n\treturn 0;\n}\n" % "\n".join(lines))
    program = tmp_path / "layout"
    subprocess.run([compiler, "-I%s" % HEADERS.parent, "-o", str(program), str(source)],
                   check=True)
    output = subprocess.run([str(program)], stdout=subprocess.PIPE, check=True,
                            universal_newlines=True).stdout
    found = {name: int(value) for name, value in
             (line.rsplit(" ", 1) for line in output.splitlines())}
    assert found == expected
