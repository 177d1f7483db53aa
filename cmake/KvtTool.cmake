# SPDX-License-Identifier: Apache-2.0
# The command-line tool. It links the static library, so that it starts from the build folder, from
# any prefix and from an unpacked package without a search path. All but main.c is a library of its
# own, from which tests and fuzz targets take the parsers.
file(GLOB tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/*.c)
list(FILTER tool_sources EXCLUDE REGEX "/main\\.c$")
if(tool_sources)
	add_library(kvtier_tool_parts STATIC ${tool_sources})
	target_include_directories(kvtier_tool_parts PUBLIC ${PROJECT_SOURCE_DIR}/tools)
	target_link_libraries(kvtier_tool_parts PUBLIC kvtier::static PkgConfig::KVTIER_JANSSON m)
	add_executable(kvtier_tool ${PROJECT_SOURCE_DIR}/tools/main.c)
	set_target_properties(kvtier_tool PROPERTIES OUTPUT_NAME kvtier)
	target_link_libraries(kvtier_tool PRIVATE kvtier_tool_parts)
endif()
