# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, and twice, in each language that callers use, without a warning.
. "$(dirname "$0")/common.sh"

# compile HEADER SUFFIX COMPILER FLAGS...: a file that includes only the header
compile()
{
	header=$1 suffix=$2
	shift 2
	source=$scratch/alone.$suffix
	printf '#include <kvtier/%s>\n#include <kvtier/%s>\nint alone;\n' "$header" "$header" >"$source"
	if ! "$@" -I"$KVT_SOURCE_DIR/include" -Wall -Wextra -Wpedantic -pedantic-errors -Werror \
		-Wshadow -fsyntax-only "$source"; then
		fail "$header: does not compile with: $*"
	fi
}

cxx=c++
case $CC in *clang*) cxx=clang++ ;; esac
count=0
for path in "$KVT_SOURCE_DIR"/include/kvtier/*.h; do
	header=$(basename "$path")
	for standard in c99 c11 c17; do
		compile "$header" c "$CC" "-std=$standard" -Wstrict-prototypes
	done
	for standard in c++11 c++17; do
		compile "$header" cc "$cxx" "-std=$standard" -Wold-style-cast
	done
	count=$((count + 1))
done
[ "$count" -ge 7 ] || fail "found only $count public headers"
finish
