#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The golden objects are what an independent writer makes of their inputs.
set -eu
data=${KVT_TEST_DATA_DIR:?}
if ! command -v python3 >/dev/null; then
	echo "skipped: python3 is not installed"
	exit 77
fi
python3 "$(dirname "$0")/golden_objects.py" --check "$data/golden.json" "$data/golden"
