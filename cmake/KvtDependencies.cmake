# SPDX-License-Identifier: Apache-2.0
# What the library stands on: pkg-config modules, each as a target PkgConfig::KVTIER_<NAME>. A static
# link needs them too: kvtier.pc and kvtierConfig.cmake repeat the lists that are made here.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

set(KVT_DEPENDENCIES "jansson>=2.12" "libisal>=2.20" "libmd>=1.0")
if(KVT_URING)
	list(APPEND KVT_DEPENDENCIES "liburing>=2.0")
endif()

# 7.85: CURLOPT_PROTOCOLS_STR, and a thread-safe curl_global_init; 7.87: CURLOPT_QUICK_EXIT.
set(KVT_S3_DEPENDENCIES "libcurl>=7.87" "expat>=2.4" "libcrypto>=1.1.1")
if(KVT_S3)
	list(APPEND KVT_DEPENDENCIES ${KVT_S3_DEPENDENCIES})
endif()

set(KVT_PRIVATE_LIBS "")
set(KVT_PC_REQUIRES_PRIVATE "")
set(KVT_PC_LIBS_PRIVATE "")
foreach(dependency ${KVT_DEPENDENCIES})
	string(REGEX REPLACE "(.*)>=(.*)" "\\1" module ${dependency})
	string(REGEX REPLACE "(.*)>=(.*)" "\\2" least ${dependency})
	string(TOUPPER KVTIER_${module} prefix)
	pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${dependency})
	list(APPEND KVT_PRIVATE_LIBS PkgConfig::${prefix})
	if(module STREQUAL "libcurl")
		# Requires.private would ask for all that a static libcurl stands on, of which most
		# machines have no development files; libcurl itself is linked as a shared library.
		set(KVT_PC_LIBS_PRIVATE " -lcurl")
	else()
		list(APPEND KVT_PC_REQUIRES_PRIVATE "${module} >= ${least}")
	endif()
endforeach()
list(JOIN KVT_PC_REQUIRES_PRIVATE ", " KVT_PC_REQUIRES_PRIVATE)
list(APPEND KVT_PRIVATE_LIBS Threads::Threads ${CMAKE_DL_LIBS})
