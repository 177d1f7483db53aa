# SPDX-License-Identifier: Apache-2.0
# The loadable backend s3+libs3, where libs3 is installed. It has neither a pkg-config file nor a
# version, and distributions ship three different APIs, so each feature is looked for alone:
# backends/libs3/compat.h says what they are.
set(KVT_LIBS3 AUTO CACHE STRING "Build the module s3+libs3 (needs libs3): AUTO (when found), ON or OFF")
set_property(CACHE KVT_LIBS3 PROPERTY STRINGS AUTO ON OFF)

include(CheckCSourceCompiles)
include(CMakePushCheckState)

# Fills `list` with the definitions that fit the libs3.h in `include_dir`, by compiling alone. Results
# are cached under `prefix`.
function(kvt_libs3_features list prefix include_dir)
	cmake_push_check_state(RESET)
	set(CMAKE_REQUIRED_INCLUDES ${include_dir})
	set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
	set(CMAKE_REQUIRED_QUIET TRUE)
	set(definitions "")
	set(HAVE_TIMEOUT "static void (*head)(const S3BucketContext *, const char *, S3RequestContext *,
		int, const S3ResponseHandler *, void *) = S3_head_object; return head == 0;")
	set(HAVE_TOKEN "S3BucketContext context; context.securityToken = 0;
		return context.securityToken != 0;")
	set(HAVE_REGION "S3BucketContext context; context.authRegion = 0;
		return context.authRegion != 0;")
	set(HAVE_VERIFY "S3_set_request_context_verify_peer(0, S3_INIT_VERIFY_PEER); return 0;")
	# With a time limit: snapshots of 2016 have uploads without one, which are left alone.
	set(HAVE_MULTIPART "S3_initiate_multipart(0, 0, 0, 0, 0, 0, 0); return 0;")
	foreach(feature HAVE_TIMEOUT HAVE_TOKEN HAVE_REGION HAVE_VERIFY HAVE_MULTIPART)
		set(CMAKE_REQUIRED_FLAGS "-Werror=implicit-function-declaration \
-Werror=incompatible-pointer-types")
		check_c_source_compiles("#include <libs3.h>
			int main(void) { ${${feature}} }" ${prefix}_${feature})
		if(${prefix}_${feature})
			list(APPEND definitions KVT_LIBS3_${feature})
		endif()
	endforeach()
	cmake_pop_check_state()
	set(${list} "${definitions}" PARENT_SCOPE)
endfunction()

if(KVT_LIBS3)
	find_path(KVT_LIBS3_INCLUDE_DIR libs3.h)
	find_library(KVT_LIBS3_LIBRARY s3)
	mark_as_advanced(KVT_LIBS3_INCLUDE_DIR KVT_LIBS3_LIBRARY)
endif()

if(NOT KVT_LIBS3)
	message(STATUS "Module s3+libs3: off (KVT_LIBS3)")
elseif(NOT KVT_LIBS3_INCLUDE_DIR OR NOT KVT_LIBS3_LIBRARY)
	if(NOT KVT_LIBS3 STREQUAL "AUTO")
		message(FATAL_ERROR "KVT_LIBS3: libs3.h or libs3.so was not found")
	endif()
	message(STATUS "Module s3+libs3: not built, libs3 was not found (Debian: libs3-dev)")
else()
	kvt_libs3_features(libs3_definitions KVT_LIBS3 ${KVT_LIBS3_INCLUDE_DIR})
	file(GLOB libs3_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/libs3/*.c)
	add_library(kvtier-backend-libs3 MODULE ${libs3_sources})
	target_compile_definitions(kvtier-backend-libs3 PRIVATE ${libs3_definitions})
	target_include_directories(kvtier-backend-libs3 PRIVATE ${PROJECT_SOURCE_DIR}/include)
	target_include_directories(kvtier-backend-libs3 SYSTEM PRIVATE ${KVT_LIBS3_INCLUDE_DIR})
	target_link_libraries(kvtier-backend-libs3 PRIVATE ${KVT_LIBS3_LIBRARY} Threads::Threads)
	set_target_properties(kvtier-backend-libs3 PROPERTIES
			      PREFIX "" OUTPUT_NAME "kvtier-backend-s3+libs3"
			      LIBRARY_OUTPUT_DIRECTORY ${KVT_BUILD_MODULE_DIR})
	# Below the prefix that KVT_MODULE_DIR was made from.
	install(TARGETS kvtier-backend-libs3 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/kvtier
		COMPONENT libs3)
	install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright COMPONENT libs3
		DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kvtier-libs3)
	string(REPLACE "KVT_LIBS3_HAVE_" "" libs3_features "${libs3_definitions}")
	string(TOLOWER "${libs3_features}" libs3_features)
	if(NOT libs3_features)
		set(libs3_features "of version 2.0")
	endif()
	message(STATUS "Module s3+libs3: ${KVT_LIBS3_LIBRARY}, ${libs3_features}")
endif()

# The same sources against the interface of 4.1, on a libs3 in memory: what only newer versions can do
# is tested where 2.0 is at hand, or none.
if(KVT_TESTS)
	set(libs3_4_dir ${PROJECT_SOURCE_DIR}/tests/libs3_4)
	kvt_libs3_features(libs3_4_definitions KVT_LIBS3_4 ${libs3_4_dir})
	list(LENGTH libs3_4_definitions libs3_4_count)
	if(NOT libs3_4_count EQUAL 5)
		message(FATAL_ERROR "libs3 4.1: found \"${libs3_4_definitions}\", expected 5 features")
	endif()
	file(GLOB libs3_4_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/libs3/*.c
	     ${libs3_4_dir}/*.c)
	add_library(kvtier-backend-libs3-4 MODULE ${libs3_4_sources})
	target_compile_definitions(kvtier-backend-libs3-4 PRIVATE ${libs3_4_definitions})
	target_include_directories(kvtier-backend-libs3-4 PRIVATE ${PROJECT_SOURCE_DIR}/include
				   ${libs3_4_dir})
	target_link_libraries(kvtier-backend-libs3-4 PRIVATE Threads::Threads)
	set_target_properties(kvtier-backend-libs3-4 PROPERTIES
			      PREFIX "" OUTPUT_NAME "kvtier-backend-s3+libs3"
			      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/libs3_4)
endif()
