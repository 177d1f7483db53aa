#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel, looks at what is in it, tests what it installs, and runs it in a root folder that
# has Python and hardly anything else: first without libcurl and OpenSSL, whose absence must be said
# clearly, then with them. Expects KVT_SOURCE_DIR, KVT_BUILD_DIR and KVT_PYTHON, as ctest sets them.
set -eu
: "${KVT_SOURCE_DIR:?}" "${KVT_BUILD_DIR:?}"
python=${KVT_PYTHON:-/usr/bin/python3}
tests=$KVT_SOURCE_DIR/bindings/python/tests

skip()
{
	echo "skipped: $*"
	exit 77
}

fail()
{
	echo "test_wheel: $*" >&2
	exit 1
}

for module in pip setuptools wheel pytest numpy; do
	"$python" -c "import $module" 2>/dev/null ||
		skip "$python has no $module; scripts/install-deps installs python3-$module"
done
for program in patchelf cmake ninja ldd; do
	command -v $program >/dev/null || skip "$program is not installed"
done

scratch=$(mktemp -d)
server=
# shellcheck disable=SC2329 # called by the trap
clean_up()
{
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
unset KVTIER_LIBRARY PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

echo "== the wheel"
"$python" -m pip wheel --quiet --no-build-isolation --no-deps --no-cache-dir \
	--wheel-dir "$scratch/dist" "$KVT_SOURCE_DIR/bindings/python"
for left in build dist kvtier.egg-info kvtier/_lib; do
	[ ! -e "$KVT_SOURCE_DIR/bindings/python/$left" ] || fail "left $left in the source tree"
done
wheel=$(ls "$scratch"/dist/kvtier-*.whl)
case $wheel in
*-py3-none-linux_*.whl) ;;
*) fail "$wheel: expected a wheel for any Python 3 on this platform" ;;
esac
# As pip unpacks it for somebody whose files may be written by the group.
(umask 002 && "$python" -m pip install --quiet --no-deps --no-index --target "$scratch/site" "$wheel")
lib=$scratch/site/kvtier/_lib
for name in libkvtier.so.0.1 kvtier-backend-s3.so libisal- libjansson- libmd- libexpat- licenses/kvtier; do
	ls "$lib"/$name* >/dev/null 2>&1 || fail "the wheel has no $name"
done
for file in "$lib"/*.so*; do
	[ "$(patchelf --print-rpath "$file")" = "\$ORIGIN" ] ||
		fail "$file: looks for libraries in $(patchelf --print-rpath "$file")"
	for needed in $(patchelf --print-needed "$file"); do
		case $needed in
		libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | ld-linux*) ;;
		libcurl.so.* | libcrypto.so.* | libssl.so.*)
			case $file in
			*/kvtier-backend-s3.so) ;;
			*) fail "$file: needs $needed" ;;
			esac
			;;
		*) [ -e "$lib/$needed" ] || fail "$file: needs $needed, which is not in the wheel" ;;
		esac
	done
done

echo "== what it installs"
(cd "$scratch" && KVT_TEST_INSTALLED=1 PYTHONPATH="$scratch/site" "$python" -m pytest -q \
	-p no:cacheprovider "$tests/test_store.py" "$tests/test_keys.py" "$tests/test_life.py")

echo "== in a bare root folder"
if [ "$(id -u)" -eq 0 ]; then
	enter=chroot
elif unshare -r true 2>/dev/null; then
	enter="unshare -r chroot"
else
	skip "not root, and no user namespaces: the bare root folder cannot be entered"
fi
root=$scratch/root
# add FILE...: the files at the same places below the root folder, with what the loader finds for them
add()
{
	for file; do
		for path in $file $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do
			[ -e "$root$path" ] && continue
			mkdir -p "$root$(dirname "$path")"
			cp -L "$path" "$root$path"
		done
	done
}
stdlib=$("$python" -c 'import os; print(os.path.dirname(os.__file__))')
program=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
mkdir -p "$root$stdlib" "$root/site" "$root/tmp"
for entry in "$stdlib"/*; do
	case ${entry##*/} in
	test | idlelib | lib2to3 | ensurepip | tkinter | turtledemo | dist-packages | site-packages | \
		config-* | __pycache__) ;;
	*) cp -r "$entry" "$root$stdlib/" ;;
	esac
done
rm -f "$root$stdlib"/lib-dynload/_ssl.* "$root$stdlib"/lib-dynload/_hashlib.*
add "$program" "$stdlib"/lib-dynload/_ctypes.*.so
cp -r "$scratch/site/kvtier" "$root/site/"
cp "$tests/bare_root.py" "$root/"
$enter "$root" "$program" -c '' 2>"$scratch/why" ||
	skip "the bare root folder cannot be entered: $(cat "$scratch/why")"
[ ! -e "$root/usr/include" ] || fail "the bare root folder has headers"
for name in isal uring jansson curl ssl crypto; do
	find "$root/usr" "$root/lib" -name "lib$name*.so*" 2>/dev/null | grep -q . &&
		fail "the bare root folder has lib$name"
done

$enter "$root" "$program" /bare_root.py without
# It brings OpenSSL's.
add "$(ldd "$lib/kvtier-backend-s3.so" | sed -n 's/^\tlibcurl\.so\.4 => \(\/[^ ]*\).*/\1/p')"
if [ ! -x "$KVT_BUILD_DIR/tests/s3_fault_server" ]; then
	skip "$KVT_BUILD_DIR/tests/s3_fault_server is not built"
fi
echo secret-of-the-test >"$scratch/secret"
mkfifo "$scratch/said"
"$KVT_BUILD_DIR/tests/s3_fault_server" --bucket test --access-key key-of-the-test \
	--secret-key-file "$scratch/secret" >"$scratch/said" &
server=$!
read -r _ url <"$scratch/said"
$enter "$root" "$program" /bare_root.py with "$url"
echo "test_wheel: all is well"
