# SPDX-License-Identifier: Apache-2.0
# What the library stands on. KVT_PRIVATE_PKGS names the pkg-config modules that a static link needs
# too; kvtier.pc and kvtierConfig.cmake repeat the list.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

set(KVT_PRIVATE_PKGS jansson libcrypto libisal)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.12)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto>=1.1.1)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal>=2.20)
set(KVT_PRIVATE_LIBS PkgConfig::JANSSON PkgConfig::CRYPTO PkgConfig::ISAL)
if(KVT_URING)
	pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing>=2.0)
	list(APPEND KVT_PRIVATE_PKGS liburing)
	list(APPEND KVT_PRIVATE_LIBS PkgConfig::URING)
endif()
list(APPEND KVT_PRIVATE_LIBS Threads::Threads ${CMAKE_DL_LIBS})
