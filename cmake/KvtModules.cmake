# SPDX-License-Identifier: Apache-2.0
# Loadable backends. They link nothing of ours: the core hands them what they need in struct
# kvt_host. The skeleton is compiled and tested, and not installed.
foreach(module skeleton)
	file(GLOB module_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/${module}/*.c)
	if(NOT module_sources)
		continue()
	endif()
	add_library(kvtier-backend-${module} MODULE ${module_sources})
	target_include_directories(kvtier-backend-${module} PRIVATE ${PROJECT_SOURCE_DIR}/include)
	target_link_libraries(kvtier-backend-${module} PRIVATE Threads::Threads)
	set_target_properties(kvtier-backend-${module} PROPERTIES
			      PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${KVT_BUILD_MODULE_DIR})
endforeach()
