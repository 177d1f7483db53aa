#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run with the programs of this build: skipped with a reason without a driver, and to the
# end on the tests' own.
set -eu

programs="test_cuda_contract test_cuda_stress gpu_bench"
for program in $programs; do
	if [ ! -x "$KVT_BUILD_DIR/tests/$program" ]; then
		echo "skipped: the CUDA device was left out of this build"
		exit 77
	fi
done
if [ -z "${KVTIER:-}" ]; then
	echo "skipped: the tool was left out of this build"
	exit 77
fi
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
for program in $programs; do
	ln -s "$KVT_BUILD_DIR/tests/$program" "$pack/$program"
done
ln -s "$KVTIER" "$pack/kvtier"
echo 2.34 >"$pack/glibc"

fail() {
	echo "$1" >&2
	cat "$pack/log" >&2
	exit 1
}

# A folder before all others whose driver is none hides one that is here.
mkdir "$pack/none"
: >"$pack/none/libcuda.so.1"
status=0
LD_LIBRARY_PATH=$pack/none "$KVT_SOURCE_DIR/tests/gpu/run" "$pack" --no-bench \
	>"$pack/log" 2>&1 || status=$?
[ "$status" = 77 ] || fail "without a driver: status $status, expected 77"
grep -q '^skipped: no GPU' "$pack/log" || fail "without a driver: no reason"

status=0
LD_LIBRARY_PATH=$KVT_BUILD_DIR/tests/fake_cuda "$KVT_SOURCE_DIR/tests/gpu/run" "$pack" \
	--no-bench >"$pack/log" 2>&1 || status=$?
[ "$status" = 0 ] || fail "on the tests' own driver: status $status, expected 0"
grep -q '^contract: ok' "$pack/log" || fail "the contract was not run"
grep -q '^stress: ok' "$pack/log" || fail "the stress test was not run"
grep -q '^measurements: not run' "$pack/log" || fail "the measurements were run"

# Figures of a driver that copies with the CPU mean nothing; that there are some does.
status=0
LD_LIBRARY_PATH=$KVT_BUILD_DIR/tests/fake_cuda "$pack/gpu_bench" --quick 1 \
	>"$pack/log" 2>&1 || status=$?
case $status in
0 | 3) ;;
*) fail "gpu_bench: status $status, expected 0 or 3" ;;
esac
rows=$(grep -c '^| .* |$' "$pack/log")
[ "$rows" -ge 9 ] || fail "gpu_bench: $rows rows"
