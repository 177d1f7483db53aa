# SPDX-License-Identifier: Apache-2.0
# The command-line tool. It links the static library, so that it starts from the build folder, from
# any prefix and from an unpacked package without a search path.
file(GLOB tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/*.c)
if(tool_sources)
	add_executable(kvtier_tool ${tool_sources})
	set_target_properties(kvtier_tool PROPERTIES OUTPUT_NAME kvtier)
	target_link_libraries(kvtier_tool PRIVATE kvtier::static PkgConfig::KVTIER_JANSSON m)
endif()
