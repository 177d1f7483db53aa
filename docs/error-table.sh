#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints docs/man/kvtier.3 with its tables of error classes and codes made anew from
# include/kvtier/error.h, the one place where they are written down. With --write the page is
# replaced. A test fails while the page differs from what is printed.
set -eu
cd "$(dirname "$0")/.."
header=include/kvtier/error.h
page=docs/man/kvtier.3

# entries PATTERN REPLACEMENT: the entries of a table, which may span lines, one a line
entries()
{
	tr -d '\\\n' <"$header" | tr -s '\t ' ' ' | grep -oE "$1" | sed -E "s/$1/$2/"
}

out=$(mktemp)
trap 'rm -f "$out"' EXIT
classes='X\(([A-Z]+), ([0-9]+), "([^"]*)"\)'
codes='X\(([A-Z0-9]+), -([0-9]+), ([A-Z]+), "([^"]*)"\)'
{
	sed -n '1,/^\.\\" begin: classes/p' "$page"
	entries "$classes" '.It Dv KVT_CLASS_\1 Ta \2 Ta \3'
	sed -n '/^\.\\" end: classes/,/^\.\\" begin: codes/p' "$page"
	entries "$codes" '.It Dv KVT_\1 Ta \\-\2 Ta \3 Ta \4'
	sed -n '/^\.\\" end: codes/,$p' "$page"
} >"$out"
if [ "${1:-}" = --write ]; then
	cat "$out" >"$page"
else
	cat "$out"
fi
