# SPDX-License-Identifier: Apache-2.0
# Debian packages, made by `cpack` in the build folder: libkvtier0.1 (the shared library),
# libkvtier-dev (headers, static library, manual of the API), kvtier (the tool) and, where libs3 was
# found, kvtier-libs3 (the module, apart from all that does not need libs3). For packages that
# look where Debian looks, configure with -DCMAKE_INSTALL_PREFIX=/usr.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvtier)
set(CPACK_PACKAGE_VENDOR kvtier)
set(CPACK_PACKAGE_CONTACT "The kvtier maintainers <kvtier@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL lib dev)
if(TARGET kvtier_tool)
	list(APPEND CPACK_COMPONENTS_ALL tool)
endif()
if(TARGET kvtier-backend-libs3)
	list(APPEND CPACK_COMPONENTS_ALL libs3)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

set(soname_version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIB_PACKAGE_NAME libkvtier${soname_version})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIB_DESCRIPTION "${PROJECT_DESCRIPTION}: shared library")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libkvtier-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libkvtier${soname_version} (= ${PROJECT_VERSION}), libjansson-dev, libmd-dev, libisal-dev")
if(KVT_URING)
	string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", liburing-dev")
endif()
if(KVT_S3)
	string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libssl-dev, libcurl4-openssl-dev, libexpat1-dev")
endif()
set(CPACK_COMPONENT_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}: headers and static library")

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME kvtier)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_TOOL_DESCRIPTION "${PROJECT_DESCRIPTION}: command-line tool")

set(CPACK_DEBIAN_LIBS3_PACKAGE_NAME kvtier-libs3)
set(CPACK_DEBIAN_LIBS3_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBS3_PACKAGE_ENHANCES "libkvtier${soname_version}, kvtier")
set(CPACK_COMPONENT_LIBS3_DESCRIPTION "${PROJECT_DESCRIPTION}: object stores by libs3")

include(CPack)
