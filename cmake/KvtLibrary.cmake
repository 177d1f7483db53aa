# SPDX-License-Identifier: Apache-2.0
# libkvtier: the core and the backends that are always built in, compiled once for the shared and
# the static library. Tests link the static one and so reach what is not exported.
file(GLOB core_sources CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/src/*.c
     ${PROJECT_SOURCE_DIR}/backends/file/*.c
     ${PROJECT_SOURCE_DIR}/backends/mem/*.c
     ${PROJECT_SOURCE_DIR}/backends/fault/*.c)
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/kvtier/*.h)
if(KVT_S3)
	file(GLOB s3_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/s3/*.c)
	list(APPEND core_sources ${s3_sources})
endif()
if(KVT_HAVE_CUDA)
	file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/cuda/*.c)
	list(APPEND core_sources ${cuda_sources})
endif()
set(export_map ${PROJECT_SOURCE_DIR}/src/kvtier.map)

add_library(kvtier_objects OBJECT ${core_sources})
target_include_directories(kvtier_objects PRIVATE ${PROJECT_SOURCE_DIR}/include
						  ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(kvtier_objects PRIVATE KVT_MODULE_DIR="${KVT_MODULE_DIR}")
if(KVT_URING)
	target_compile_definitions(kvtier_objects PRIVATE KVT_HAVE_URING=1)
endif()
set(registry ${PROJECT_SOURCE_DIR}/src/registry.c)
if(KVT_S3 AND EXISTS ${PROJECT_SOURCE_DIR}/backends/s3/s3.c)
	set_property(SOURCE ${registry} APPEND PROPERTY COMPILE_DEFINITIONS
		     "KVT_BUILTIN_BACKENDS=X(file) X(mem) X(fault) X(s3)")
endif()
if(KVT_HAVE_CUDA)
	set_property(SOURCE ${registry} APPEND PROPERTY COMPILE_DEFINITIONS
		     "KVT_BUILTIN_DEVICES=X(host) X(cuda)")
	# The toolkit's headers are not held to our warnings.
	target_include_directories(kvtier_objects SYSTEM PRIVATE ${KVT_CUDA_INCLUDE_DIR})
endif()
# For their include folders and definitions; the libraries below link them.
target_link_libraries(kvtier_objects PRIVATE ${KVT_PRIVATE_LIBS})

foreach(kind SHARED STATIC)
	string(TOLOWER ${kind} name)
	add_library(kvtier_${name} ${kind} $<TARGET_OBJECTS:kvtier_objects>)
	add_library(kvtier::${name} ALIAS kvtier_${name})
	set_target_properties(kvtier_${name} PROPERTIES OUTPUT_NAME kvtier EXPORT_NAME ${name}
			      LINKER_LANGUAGE C)
	target_include_directories(kvtier_${name} INTERFACE
				   $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
				   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
	target_link_libraries(kvtier_${name} PRIVATE ${KVT_PRIVATE_LIBS})
endforeach()

# While the major version is 0, each minor version may change the ABI and has a SONAME of its own.
set_target_properties(kvtier_shared PROPERTIES
		      VERSION ${PROJECT_VERSION}
		      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
		      LINK_DEPENDS ${export_map})
target_link_options(kvtier_shared PRIVATE -Wl,--version-script=${export_map} -Wl,-z,relro,-z,now)
if(NOT KVT_SANITIZE AND NOT KVT_FUZZ)
	# A sanitizer's runtime comes with the program.
	target_link_options(kvtier_shared PRIVATE -Wl,--no-undefined)
endif()
