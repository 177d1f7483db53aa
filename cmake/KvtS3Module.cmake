# SPDX-License-Identifier: Apache-2.0
# The S3 backend as a loadable module, for builds whose library must not need libcurl and OpenSSL
# (Python wheels): the same sources, and the entry that the core looks for in modules.
if(KVT_S3_MODULE)
	if(KVT_S3)
		message(FATAL_ERROR "KVT_S3_MODULE: the backend is built in already (KVT_S3)")
	endif()
	file(GLOB s3_module_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/s3/*.c
	     ${PROJECT_SOURCE_DIR}/backends/s3/module/*.c)
	add_library(kvtier-backend-s3 MODULE ${s3_module_sources})
	target_include_directories(kvtier-backend-s3 PRIVATE ${PROJECT_SOURCE_DIR}/include)
	foreach(dependency ${KVT_S3_DEPENDENCIES})
		string(REGEX REPLACE ">=.*" "" name ${dependency})
		string(TOUPPER KVTIER_S3_${name} prefix)
		pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${dependency})
		target_link_libraries(kvtier-backend-s3 PRIVATE PkgConfig::${prefix})
	endforeach()
	target_link_libraries(kvtier-backend-s3 PRIVATE PkgConfig::KVTIER_JANSSON Threads::Threads)
	if(NOT KVT_SANITIZE AND NOT KVT_FUZZ)
		target_link_options(kvtier-backend-s3 PRIVATE -Wl,--no-undefined -Wl,-z,relro,-z,now)
	endif()
	set_target_properties(kvtier-backend-s3 PROPERTIES
			      PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${KVT_BUILD_MODULE_DIR})
	install(TARGETS kvtier-backend-s3 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/kvtier
		COMPONENT lib)
endif()
