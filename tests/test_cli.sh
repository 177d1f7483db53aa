#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command-line tool from end to end; the cases are in cli_test.py beside this file.
set -eu
if ! command -v python3 >/dev/null; then
	echo "skipped: python3 is not installed"
	exit 77
fi
if [ -z "${KVTIER:-}" ]; then
	echo "skipped: the tool is not built"
	exit 77
fi
exec python3 "$(dirname "$0")/cli_test.py"
