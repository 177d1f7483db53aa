# SPDX-License-Identifier: Apache-2.0
# Installs into a scratch prefix, moves it, and builds and runs the examples against it: by
# pkg-config and by find_package, with the shared and with the static library, in C and in C++.
here=$(dirname "$0")
. "$here/common.sh"

cmake --install "$KVT_BUILD_DIR" --prefix "$scratch/first" >"$scratch/log" 2>&1 || {
	cat "$scratch/log"
	fail "cmake --install failed"
	finish
}
# What finds itself by where it lies still works after this.
mv "$scratch/first" "$scratch/prefix"
prefix=$scratch/prefix

pc=$(find "$prefix" -name kvtier.pc)
[ -n "$pc" ] || fail "no kvtier.pc was installed"
libdir=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH

headers=$(cd "$KVT_SOURCE_DIR" && echo include/kvtier/*.h)
for wanted in bin/kvtier $headers; do
	[ -e "$prefix/$wanted" ] || fail "$wanted was not installed"
done
if [ -x "$prefix/bin/kvtier" ]; then
	"$prefix/bin/kvtier" version >"$scratch/version" || fail "the installed tool does not run"
	grep -q "$(pkg-config --modversion kvtier)" "$scratch/version" ||
		fail "kvtier version says $(cat "$scratch/version")"
fi

# run_examples FOLDER WHAT: runs each on a store of its own
run_examples()
{
	count=0
	for source in "$KVT_SOURCE_DIR"/examples/*.c; do
		name=$(basename "$source" .c)
		if ! timeout 60 sh "$here/with_store" "$1/$name" >"$scratch/log" 2>&1; then
			cat "$scratch/log"
			fail "$2: example $name failed"
		fi
		count=$((count + 1))
	done
	[ "$count" -ge 4 ] || fail "$2: ran only $count examples"
}

# 1. pkg-config, shared and static
for kind in shared static; do
	mkdir "$scratch/pc-$kind"
	for source in "$KVT_SOURCE_DIR"/examples/*.c; do
		name=$(basename "$source" .c)
		if [ $kind = shared ]; then
			libs="$(pkg-config --libs kvtier) -Wl,-rpath,$libdir"
		else
			libs=$(pkg-config --static --libs kvtier | sed 's/-lkvtier\b/-l:libkvtier.a/')
		fi
		# shellcheck disable=SC2046,SC2086 # lists of flags
		"$CC" -std=c11 -O1 $(pkg-config --cflags kvtier) "$source" \
			-o "$scratch/pc-$kind/$name" $libs ||
			fail "pkg-config, $kind: example $name does not build"
	done
	run_examples "$scratch/pc-$kind" "pkg-config, $kind"
done
if objdump -p "$scratch/pc-static/store_load" | grep -q 'NEEDED.*kvtier'; then
	fail "the static link needs libkvtier.so"
fi
objdump -p "$scratch/pc-shared/store_load" | grep -q 'NEEDED.*libkvtier.so.0' ||
	fail "the shared link does not need libkvtier.so"

# 2. find_package, shared and static
for static in OFF ON; do
	build=$scratch/cmake-$static
	if ! { cmake -S "$KVT_SOURCE_DIR/examples" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" \
		-DCMAKE_C_COMPILER="$CC" -DKVT_EXAMPLES_STATIC=$static &&
		cmake --build "$build" -j2; } >"$scratch/log" 2>&1; then
		cat "$scratch/log"
		fail "find_package, static $static: does not build"
		continue
	fi
	run_examples "$build" "find_package, static $static"
done

# 3. a C++ caller
cxx=c++
case $CC in *clang*) cxx=clang++ ;; esac
cat >"$scratch/caller.cc" <<'END'
#include <cstdio>
#include <cstring>
#include <kvtier/backend.h>
#include <kvtier/device.h>
#include <kvtier/kvtier.h>

int main()
{
	kvt_store_options options = KVT_INIT(options);
	kvt_store *store = nullptr;
	options.uri = "mem:";
	options.namespace_name = "cxx";
	if (kvt_store_open(&options, &store) != KVT_OK) {
		std::fprintf(stderr, "%s\n", kvt_error_detail());
		return 1;
	}
	return kvt_store_close(store) || std::strcmp(kvt_version(), KVT_VERSION_STRING);
}
END
# shellcheck disable=SC2046 # lists of flags
"$cxx" -std=c++11 -Wall -Wextra -Werror -Wno-missing-field-initializers $(pkg-config --cflags kvtier) \
	"$scratch/caller.cc" -o "$scratch/caller" $(pkg-config --libs kvtier) "-Wl,-rpath,$libdir" &&
	"$scratch/caller" || fail "the C++ caller failed"
finish
