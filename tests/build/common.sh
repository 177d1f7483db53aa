# SPDX-License-Identifier: Apache-2.0
# Sourced by the checks in this folder: a scratch folder that goes with the shell, and failure
# counting. Expects KVT_SOURCE_DIR, KVT_BUILD_DIR and CC in the environment, as ctest sets them.
set -eu
: "${KVT_SOURCE_DIR:?}" "${KVT_BUILD_DIR:?}"
CC=${CC:-cc}
LC_ALL=C
export LC_ALL

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# Counts one failure and goes on: a check reports everything that is wrong.
fail()
{
	echo "$0: $*" >&2
	failures=$((failures + 1))
}

finish()
{
	if [ "$failures" -ne 0 ]; then
		echo "$0: $failures failures" >&2
		exit 1
	fi
	exit 0
}

# Names of all functions that the public headers mark with KVT_API, sorted, one a line.
api_functions()
{
	cat "$KVT_SOURCE_DIR"/include/kvtier/*.h | tr '\n' ' ' | grep -oE 'KVT_API [^;{]*\(' |
		grep -oE '\bkvt_[a-z0-9_]+ ?\(' | tr -d ' (' | sort -u
}
