# SPDX-License-Identifier: Apache-2.0
# One program for each tests/test_*.c, one shell test for each tests/test_*.sh, the fuzz targets over
# their corpora, and the checks of the build itself in tests/build/. Exit status 77 means skipped.
# Labels: unit, contract, stress, crash, build, live; ctest -L picks by them.
set(test_dir ${PROJECT_SOURCE_DIR}/tests)
set(test_definitions
    KVT_TEST_DATA_DIR="${test_dir}/data"
    KVT_TEST_MODULE_DIR="${KVT_BUILD_MODULE_DIR}"
    KVT_TEST_BIN_DIR="${PROJECT_BINARY_DIR}/tests"
    KVT_TEST_FAKE_MODULE_DIR="${PROJECT_BINARY_DIR}/tests/modules")
if(TARGET kvtier_tool)
	list(APPEND test_definitions KVT_TEST_TOOL="$<TARGET_FILE:kvtier_tool>")
endif()

# A label and a time limit in seconds for a test, from its name.
function(kvt_label_test name)
	if(name MATCHES "stress|concurren")
		set(label stress)
		set(limit 300)
	elseif(name MATCHES "crash|(^|_)race|kill")
		set(label crash)
		set(limit 300)
	elseif(name MATCHES "contract|sweep")
		set(label contract)
		set(limit 300)
	elseif(name MATCHES "^build\\.")
		set(label build)
		set(limit 300)
	else()
		set(label unit)
		set(limit 120)
	endif()
	# Which slow down everything, most of all where threads meet.
	if(KVT_SANITIZE)
		math(EXPR limit "${limit} * 4")
	endif()
	if(DEFINED ENV{KVT_TEST_LONG})
		math(EXPR limit "${limit} * 12")
	endif()
	set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${limit} SKIP_RETURN_CODE 77)
	# What measures, crashes or builds gets the machine to itself.
	if(NOT label MATCHES "unit|contract")
		set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
	endif()
endfunction()

function(kvt_test_program target)
	target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${test_dir})
	target_compile_definitions(${target} PRIVATE ${test_definitions})
	if(KVT_URING)
		target_compile_definitions(${target} PRIVATE KVT_HAVE_URING=1)
	endif()
	set_target_properties(${target} PROPERTIES
			      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
	if(KVT_S3)
		target_compile_definitions(${target} PRIVATE KVT_HAVE_S3=1)
		target_link_libraries(${target} PRIVATE PkgConfig::MICROHTTPD)
	endif()
	if(TARGET kvtier_tool_parts)
		target_link_libraries(${target} PRIVATE kvtier_tool_parts)
	endif()
	target_link_libraries(${target} PRIVATE kvtier::static ${KVT_PRIVATE_LIBS} m)
	foreach(module kvtier-backend-skeleton kvtier-backend-libs3 kvtier-backend-libs3-4)
		if(TARGET ${module})
			add_dependencies(${target} ${module})
		endif()
	endforeach()
	if(TARGET kvtier_tool)
		add_dependencies(${target} kvtier_tool)
	endif()
endfunction()

if(KVT_S3)
	# The HTTP servers that tests run against.
	pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.75)
endif()

# Sources that only a build with the S3 backend, or with the CUDA device, can use are named for it.
function(kvt_filter_sources list)
	if(NOT KVT_S3)
		list(FILTER ${list} EXCLUDE REGEX "/[^/]*(s3|http)[^/]*\\.c$")
	endif()
	if(NOT KVT_HAVE_CUDA)
		list(FILTER ${list} EXCLUDE REGEX "/(test_)?cuda_[^/]*\\.c$")
	endif()
	set(${list} "${${list}}" PARENT_SCOPE)
endfunction()

if(KVT_TESTS)
	pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka>=1.1.5)
	# Digests are compared with OpenSSL's.
	pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto>=1.1.1)
	include(KvtCudaTests)

	# Modules that only tests load, most of them broken in one way each.
	file(GLOB module_sources CONFIGURE_DEPENDS ${test_dir}/modules/*.c)
	foreach(source ${module_sources})
		get_filename_component(name ${source} NAME_WLE)
		string(MAKE_C_IDENTIFIER test_module_${name} target)
		add_library(${target} MODULE ${source})
		target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
		set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name}
				      LIBRARY_OUTPUT_DIRECTORY ${KVT_BUILD_MODULE_DIR})
		list(APPEND test_programs ${target})
	endforeach()

	# tests/*.c that are no test: programs that tests start, if they have a main function, else
	# code that tests share.
	file(GLOB helper_sources CONFIGURE_DEPENDS ${test_dir}/*.c)
	list(FILTER helper_sources EXCLUDE REGEX "/test_[^/]*\\.c$")
	kvt_filter_sources(helper_sources)
	set(test_shared "")
	foreach(source ${helper_sources})
		file(STRINGS ${source} has_main REGEX "^int main\\(")
		if(has_main)
			get_filename_component(name ${source} NAME_WE)
			add_executable(${name} ${source})
			target_link_libraries(${name} PRIVATE kvtier_test_support)
			kvt_test_program(${name})
			list(APPEND test_programs ${name})
		else()
			list(APPEND test_shared ${source})
		endif()
	endforeach()
	if(test_shared)
		add_library(kvtier_test_support STATIC ${test_shared})
		kvt_test_program(kvtier_test_support)
		target_link_libraries(kvtier_test_support PUBLIC PkgConfig::CMOCKA
				      PkgConfig::CRYPTO)
		if(KVT_HAVE_CUDA)
			kvt_cuda_test_program(kvtier_test_support)
		endif()
	endif()

	# Shared objects that tests load as modules or see refused.
	file(GLOB module_sources CONFIGURE_DEPENDS ${test_dir}/modules/*.c)
	foreach(source ${module_sources})
		get_filename_component(name ${source} NAME_WE)
		add_library(${name}-fake MODULE ${source})
		target_include_directories(${name}-fake PRIVATE ${PROJECT_SOURCE_DIR}/include)
		set_target_properties(${name}-fake PROPERTIES
				      PREFIX "" OUTPUT_NAME ${name}
				      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/modules)
		list(APPEND test_programs ${name}-fake)
	endforeach()

	file(GLOB test_sources CONFIGURE_DEPENDS ${test_dir}/test_*.c)
	kvt_filter_sources(test_sources)
	foreach(source ${test_sources})
		get_filename_component(name ${source} NAME_WE)
		string(REGEX REPLACE "^test_" "" short ${name})
		add_executable(${name} ${source})
		if(TARGET kvtier_test_support)
			target_link_libraries(${name} PRIVATE kvtier_test_support)
		endif()
		kvt_test_program(${name})
		target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
		if(test_programs)
			add_dependencies(${name} ${test_programs})
		endif()
		add_test(NAME ${short} COMMAND ${name})
		kvt_label_test(${short})
		if(name MATCHES "^test_cuda_")
			kvt_cuda_test_program(${name})
			kvt_cuda_test(${name} ${short})
		endif()
	endforeach()
	if(NOT KVT_HAVE_CUDA)
		file(GLOB cuda_tests CONFIGURE_DEPENDS ${test_dir}/test_cuda_*.c)
		foreach(source ${cuda_tests})
			get_filename_component(name ${source} NAME_WE)
			string(REGEX REPLACE "^test_" "" short ${name})
			kvt_cuda_test_left_out(${short})
		endforeach()
	endif()

	set(test_environment
	    KVT_SOURCE_DIR=${PROJECT_SOURCE_DIR}
	    KVT_BUILD_DIR=${PROJECT_BINARY_DIR}
	    KVT_TEST_DATA_DIR=${test_dir}/data
	    KVT_TEST_MODULE_DIR=${KVT_BUILD_MODULE_DIR}
	    CC=${CMAKE_C_COMPILER})
	if(TARGET kvtier_tool)
		list(APPEND test_environment KVTIER=$<TARGET_FILE:kvtier_tool>)
	endif()
	file(GLOB shell_tests CONFIGURE_DEPENDS ${test_dir}/test_*.sh)
	foreach(source ${shell_tests})
		get_filename_component(name ${source} NAME_WE)
		string(REGEX REPLACE "^test_" "" short ${name})
		add_test(NAME ${short} COMMAND sh ${source})
		kvt_label_test(${short})
		set_tests_properties(${short} PROPERTIES ENVIRONMENT "${test_environment}")
	endforeach()

	# The examples as they are built in this tree, in memory and on files.
	if(KVT_EXAMPLES)
		get_property(example_targets DIRECTORY ${PROJECT_SOURCE_DIR}/examples
			     PROPERTY BUILDSYSTEM_TARGETS)
		foreach(target ${example_targets})
			string(REGEX REPLACE "^example_" "" short ${target})
			add_test(NAME example.${short} COMMAND ${target} mem:)
			add_test(NAME example.${short}.file
				 COMMAND sh ${test_dir}/build/with_store $<TARGET_FILE:${target}>)
			kvt_label_test(example.${short})
			kvt_label_test(example.${short}.file)
		endforeach()
	endif()

	# The checks of the build look at a plain build only: a sanitizer's runtime would have to be
	# linked into everything that they build against the installed tree.
	if(NOT KVT_SANITIZE)
		file(GLOB build_tests CONFIGURE_DEPENDS ${test_dir}/build/*.sh)
		foreach(source ${build_tests})
			get_filename_component(name ${source} NAME_WE)
			if(name STREQUAL "common")
				continue()
			endif()
			add_test(NAME build.${name} COMMAND sh ${source})
			kvt_label_test(build.${name})
			set_tests_properties(build.${name} PROPERTIES
					     ENVIRONMENT "${test_environment}")
		endforeach()
	endif()

	if(KVT_S3)
		include(KvtLiveTests)
	endif()
endif()

# Fuzz targets: LLVMFuzzerTestOneInput in tests/fuzz/fuzz_<name>.c. Their corpora are replayed as
# normal tests; with KVT_FUZZ they are programs that look for new inputs.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${test_dir}/fuzz/fuzz_*.c)
kvt_filter_sources(fuzz_sources)
foreach(source ${fuzz_sources})
	get_filename_component(name ${source} NAME_WE)
	string(REGEX REPLACE "^fuzz_" "" short ${name})
	if(KVT_FUZZ)
		add_executable(${name} ${source})
		kvt_test_program(${name})
		target_link_options(${name} PRIVATE -fsanitize=fuzzer)
	elseif(EXISTS ${test_dir}/fuzz/replay_main.c)
		add_executable(${name} ${source} ${test_dir}/fuzz/replay_main.c)
		kvt_test_program(${name})
		add_test(NAME fuzz.${short} COMMAND ${name} ${test_dir}/fuzz/corpus/${short})
		kvt_label_test(fuzz.${short})
	endif()
endforeach()
