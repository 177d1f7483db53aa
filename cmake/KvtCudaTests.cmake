# SPDX-License-Identifier: Apache-2.0
# The tests of the CUDA device, tests/test_cuda_*.c, on a driver of the tests' own: it is named
# libcuda.so.1 and found as the real one would be, by LD_LIBRARY_PATH. Without the device in the
# build they are skipped.
set(fake_cuda_dir ${PROJECT_BINARY_DIR}/tests/fake_cuda)
if(KVT_HAVE_CUDA)
	file(GLOB fake_cuda_sources CONFIGURE_DEPENDS ${test_dir}/fake_cuda/*.c)
	add_library(fake_cuda SHARED ${fake_cuda_sources})
	target_include_directories(fake_cuda SYSTEM PRIVATE ${KVT_CUDA_INCLUDE_DIR})
	set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1
			      LIBRARY_OUTPUT_DIRECTORY ${fake_cuda_dir})
	# Threads that end later still need its code.
	target_link_options(fake_cuda PRIVATE -Wl,-z,nodelete)
	target_link_libraries(fake_cuda PRIVATE Threads::Threads)
endif()

# What a program of the CUDA tests, or the code that they share, needs besides.
function(kvt_cuda_test_program target)
	target_include_directories(${target} SYSTEM PRIVATE ${KVT_CUDA_INCLUDE_DIR})
	add_dependencies(${target} fake_cuda)
endfunction()

function(kvt_cuda_test_environment test)
	set_tests_properties(${test} PROPERTIES
			     ENVIRONMENT "${ARGN}"
			     ENVIRONMENT_MODIFICATION
			     "LD_LIBRARY_PATH=path_list_prepend:${fake_cuda_dir}")
endfunction()

# Registers one test program; those that copy run with drivers of three kinds: batches of copies as
# of CUDA 13, as of 12.8, and none.
function(kvt_cuda_test name short)
	kvt_cuda_test_environment(${short} "")
	if(name MATCHES "contract|stress")
		foreach(version 12080 12000)
			add_test(NAME ${short}.${version} COMMAND ${name})
			kvt_label_test(${short}.${version})
			kvt_cuda_test_environment(${short}.${version}
						  "FAKE_CUDA_VERSION=${version}")
		endforeach()
	endif()
endfunction()

function(kvt_cuda_test_left_out short)
	add_test(NAME ${short}
		 COMMAND sh -c "echo 'skipped: the CUDA device was left out of this build'; exit 77")
	kvt_label_test(${short})
endfunction()

# Measures the device on a GPU; tests/gpu/pack takes it along.
if(KVT_HAVE_CUDA)
	file(GLOB gpu_bench_sources CONFIGURE_DEPENDS ${test_dir}/gpu/*.c)
	add_executable(gpu_bench ${gpu_bench_sources})
	target_include_directories(gpu_bench PRIVATE ${PROJECT_SOURCE_DIR}/src)
	target_include_directories(gpu_bench SYSTEM PRIVATE ${KVT_CUDA_INCLUDE_DIR})
	set_target_properties(gpu_bench PROPERTIES
			      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
	target_link_libraries(gpu_bench PRIVATE kvtier::static ${KVT_PRIVATE_LIBS} m)
endif()
