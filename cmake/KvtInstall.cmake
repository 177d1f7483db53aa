# SPDX-License-Identifier: Apache-2.0
# What is installed, in three components: lib (the shared library), dev (what programs are built
# with) and tool. The pkg-config file and the CMake package find their prefix from where they lie, so
# the tree may be installed anywhere with cmake --install --prefix.
include(CMakePackageConfigHelpers)

install(TARGETS kvtier_shared EXPORT kvtierSharedTargets
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev)
install(TARGETS kvtier_static EXPORT kvtierStaticTargets
	ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvtier COMPONENT dev)

file(RELATIVE_PATH KVT_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" KVT_PC_PREFIX "${KVT_PC_PREFIX}")
configure_file(cmake/kvtier.pc.in kvtier.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvtier.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
	COMPONENT dev)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvtier)
configure_package_config_file(cmake/kvtierConfig.cmake.in kvtierConfig.cmake
			      INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(kvtierConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvtierConfig.cmake
	      ${PROJECT_BINARY_DIR}/kvtierConfigVersion.cmake
	DESTINATION ${package_dir} COMPONENT dev)
install(EXPORT kvtierSharedTargets NAMESPACE kvtier:: DESTINATION ${package_dir} COMPONENT dev)
install(EXPORT kvtierStaticTargets NAMESPACE kvtier:: DESTINATION ${package_dir} COMPONENT dev)

if(TARGET kvtier_tool)
	install(TARGETS kvtier_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
	file(GLOB completion CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/completion/*)
	if(completion)
		install(FILES ${completion}
			DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
			RENAME kvtier COMPONENT tool)
	endif()
endif()

# Manual pages: section 3 belongs to programmers, the others to operators.
file(GLOB manual_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.[1-8]
     ${PROJECT_SOURCE_DIR}/docs/man/*.[1-8])
foreach(page ${manual_pages})
	string(REGEX REPLACE ".*\\.([1-8])$" "\\1" section ${page})
	if(section STREQUAL "3")
		set(component dev)
	else()
		set(component tool)
	endif()
	install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
		COMPONENT ${component})
endforeach()

# The licence, once in each package's own folder: two packages must not hold one file.
foreach(pair lib:libkvtier${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} dev:libkvtier-dev
	     tool:kvtier)
	string(REGEX REPLACE ":.*" "" component ${pair})
	string(REGEX REPLACE ".*:" "" package ${pair})
	install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright COMPONENT ${component}
		DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package})
endforeach()
