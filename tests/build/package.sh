# SPDX-License-Identifier: Apache-2.0
# The Debian packages: built by CPack from a tree configured for /usr, complete, without a file that
# two of them hold, with dependencies, and with a tool that runs where it is unpacked.
. "$(dirname "$0")/common.sh"

command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null || {
	echo "$0: skipped: no dpkg-deb or no dpkg-shlibdeps here"
	exit 77
}
if ! { cmake -S "$KVT_SOURCE_DIR" -B "$scratch/build" -G Ninja -DCMAKE_INSTALL_PREFIX=/usr \
	-DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$CC" -DKVT_TESTS=OFF -DKVT_BENCH=OFF \
	-DKVT_EXAMPLES=OFF && ninja -C "$scratch/build" -j2 &&
	cd "$scratch/build" && cpack -G DEB; } >"$scratch/log" 2>&1; then
	cat "$scratch/log"
	fail "cpack failed"
	finish
fi

mkdir "$scratch/root"
packages=0
for deb in "$scratch"/build/*.deb; do
	dpkg-deb -c "$deb" | awk '$1 !~ /^d/ { print $6 }' >>"$scratch/files"
	dpkg-deb -x "$deb" "$scratch/root"
	name=$(dpkg-deb -f "$deb" Package)
	depends=$(dpkg-deb -f "$deb" Depends)
	case $name in
	libkvtier0.1 | kvtier) expected=libjansson4 ;;
	libkvtier-dev) expected=libkvtier0.1 ;;
	kvtier-libs3) expected=libs3- ;;
	*) fail "unexpected package $name" ;;
	esac
	case $depends in
	*"$expected"*) ;;
	*) fail "$name: depends on '$depends', expected $expected among them" ;;
	esac
	packages=$((packages + 1))
done
wanted=3
# The module goes where the library looks for it, when there is a libs3 to build it with.
if grep -q '^KVT_LIBS3_LIBRARY:.*=/' "$scratch/build/CMakeCache.txt"; then
	wanted=4
	module=$(find "$scratch/root" -name 'kvtier-backend-s3+libs3.so')
	case $module in
	*/lib/*/kvtier/*) ;;
	*) fail "the module on libs3 is at '$module'" ;;
	esac
fi
[ "$packages" -eq "$wanted" ] || fail "$packages packages, expected $wanted"
sort "$scratch/files" | uniq -d | while read -r file; do echo "in two packages: $file" >&2; done
[ -z "$(sort "$scratch/files" | uniq -d)" ] || fail "packages overlap"

tool=$scratch/root/usr/bin/kvtier
mkdir "$scratch/store"
printf 'some bytes' >"$scratch/in"
"$tool" version || fail "the unpacked tool does not run"
"$tool" put --store "file://$scratch/store" --namespace packaged 00ff "$scratch/in" &&
	"$tool" get --store "file://$scratch/store" --namespace packaged 00ff "$scratch/out" &&
	cmp "$scratch/in" "$scratch/out" || fail "the unpacked tool does not put and get"
finish
