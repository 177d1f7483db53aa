# SPDX-License-Identifier: Apache-2.0
"""Builds wheels that carry libkvtier: `pip wheel --no-build-isolation bindings/python`.

The library and the S3 backend (a module of its own) are built with CMake from the sources two
folders up, into kvtier/_lib of the wheel. The small libraries that they stand on lie beside them,
under names that nothing else uses; libcurl and OpenSSL are the system's. Nothing is written into
the source tree. Needs cmake, ninja, a C compiler, patchelf and what scripts/install-deps names.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Bundled, since images that run vLLM have none of them.
BUNDLED = re.compile(r"lib(isal|uring|jansson|md|expat)\.so\.")
# The system's: part of any system, or (the last line) loaded by the S3 module only.
SYSTEM = re.compile(r"(ld-linux[^/]*|lib(c|m|dl|rt|pthread|gcc_s))\.so\.\d+$")
SYSTEM_OF_S3 = re.compile(r"lib(curl|ssl|crypto)\.so\.\d+$")


def say(message):
    print("kvtier: " + message, file=sys.stderr)


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            universal_newlines=True, check=False)
    if result.returncode != 0:
        raise SystemExit("kvtier: %s: exit status %d\n%s"
                         % (" ".join(command), result.returncode, result.stdout[-8000:]))
    return result.stdout


def version():
    with open(os.path.join(ROOT, "include", "kvtier", "version.h"), encoding="utf-8") as header:
        return re.search(r'KVT_VERSION_STRING "([^"]+)"', header.read()).group(1)


def build_libraries(folder):
    """libkvtier.so.X.Y and kvtier-backend-s3.so into a folder; their paths."""
    build = os.path.join(folder, "cmake")
    run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DKVT_S3=OFF", "-DKVT_S3_MODULE=ON", "-DKVT_MODULE_DIR=$ORIGIN", "-DKVT_LIBS3=OFF",
        "-DKVT_TESTS=OFF", "-DKVT_TOOL=OFF", "-DKVT_EXAMPLES=OFF", "-DKVT_BENCH=OFF")
    run("cmake", "--build", build, "--target", "kvtier_shared", "kvtier-backend-s3")
    library = os.path.realpath(os.path.join(build, "libkvtier.so"))
    soname = run("patchelf", "--print-soname", library).strip()
    paths = {soname: library,
             "kvtier-backend-s3.so": os.path.join(build, "modules", "kvtier-backend-s3.so")}
    return paths


def needed(path):
    return run("patchelf", "--print-needed", path).split()


def found(path):
    """Where the loader finds what a file needs: name to path."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", path), re.M))


def licence_of(path):
    """The copyright file of the Debian package that a library comes from, if it is from one."""
    for name in (os.path.realpath(path), path):
        for spelling in (name, "/usr" + name if not name.startswith("/usr/") else name[4:]):
            result = subprocess.run(("dpkg", "-S", spelling), stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, universal_newlines=True,
                                    check=False) if shutil.which("dpkg") else None
            if result is not None and result.returncode == 0:
                package = result.stdout.split(":")[0]
                file = "/usr/share/doc/%s/copyright" % package
                return (package, file) if os.path.exists(file) else (package, None)
    return os.path.basename(path).split(".")[0], None


def bundle(paths, target):
    """Copies the libraries and what they need into the folder of the wheel."""
    os.makedirs(os.path.join(target, "licenses"), exist_ok=True)
    shutil.copy(os.path.join(ROOT, "LICENSE"), os.path.join(target, "licenses", "kvtier"))
    names = {}  # of libraries as they are needed, to those that they have in the wheel
    waiting = list(paths.items())
    while waiting:
        name, path = waiting.pop()
        copy = os.path.join(target, names.get(name, name))
        shutil.copyfile(path, copy)
        os.chmod(copy, 0o755)
        if name in names:
            run("patchelf", "--set-soname", names[name], copy)
        where = found(path)
        for library in needed(path):
            if SYSTEM.match(library) or (name == "kvtier-backend-s3.so" and
                                         SYSTEM_OF_S3.match(library)):
                continue
            if not BUNDLED.match(library):
                raise SystemExit("kvtier: %s: needs %s, which neither the wheel nor every system "
                                 "has" % (name, library))
            if library not in where:
                raise SystemExit("kvtier: %s: needs %s, which is not installed" % (name, library))
            if library not in names:
                with open(where[library], "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()[:8]
                stem, rest = library.split(".so", 1)
                names[library] = "%s-kvtier-%s.so%s" % (stem, digest, rest)
                waiting.append((library, where[library]))
                package, licence = licence_of(where[library])
                if licence is not None:
                    shutil.copy(licence, os.path.join(target, "licenses", package))
            run("patchelf", "--replace-needed", library, names[library], copy)
        run("patchelf", "--set-rpath", "$ORIGIN", copy)
    say("wheel holds " + ", ".join(sorted(list(paths) + list(names.values()))))


class BuildWithLibraries(build_py):
    """The Python files, and the libraries beside them."""

    def run(self):
        if not os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
            raise SystemExit("kvtier: %s: no CMakeLists.txt; wheels are built in a checkout of "
                             "kvtier" % ROOT)
        for program in ("cmake", "ninja", "patchelf", "ldd"):
            if shutil.which(program) is None:
                raise SystemExit("kvtier: %s: not found (scripts/install-deps)" % program)
        super().run()
        bundle(build_libraries(SCRATCH), os.path.join(self.build_lib, "kvtier", "_lib"))


class PlatformWheel(bdist_wheel):
    """Any Python 3, this platform: the library is loaded by ctypes, nothing is compiled for an
    interpreter."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none") + super().get_tag()[2:]


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


with tempfile.TemporaryDirectory(prefix="kvtier-wheel-") as SCRATCH:
    setup(version=version(), distclass=BinaryDistribution,
          cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": PlatformWheel},
          options={"build": {"build_base": SCRATCH}, "egg_info": {"egg_base": SCRATCH}})
