# SPDX-License-Identifier: Apache-2.0
# Bench programs: each bench/*.c that has a main function; the others are shared by all. Never
# installed.
file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)
set(bench_shared "")
set(bench_programs "")
foreach(source ${bench_sources})
	file(STRINGS ${source} has_main REGEX "^int main\\(")
	if(has_main)
		list(APPEND bench_programs ${source})
	else()
		list(APPEND bench_shared ${source})
	endif()
endforeach()
foreach(source ${bench_programs})
	get_filename_component(name ${source} NAME_WE)
	add_executable(bench_${name} ${source} ${bench_shared})
	set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name}
			      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
	target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
	target_link_libraries(bench_${name} PRIVATE kvtier::static ${KVT_PRIVATE_LIBS} m)
endforeach()
