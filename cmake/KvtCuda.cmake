# SPDX-License-Identifier: Apache-2.0
# The CUDA device. It needs the toolkit's headers to be built, 12.8 or newer (any later driver for
# CUDA 12 or 13 will do to run), and nothing of CUDA to be linked. Looked for in $CUDA_HOME, then in
# /usr/local/cuda.
set(KVT_CUDA AUTO CACHE STRING "Build the CUDA device: AUTO (where the headers are), ON or OFF")
set_property(CACHE KVT_CUDA PROPERTY STRINGS AUTO ON OFF)

set(KVT_HAVE_CUDA OFF)
set(cuda_reason "KVT_CUDA=${KVT_CUDA}")
if(KVT_CUDA)
	find_path(KVT_CUDA_INCLUDE_DIR cuda.h HINTS $ENV{CUDA_HOME} /usr/local/cuda
		  PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include
		  DOC "Folder of the CUDA toolkit's headers")
	mark_as_advanced(KVT_CUDA_INCLUDE_DIR)
	if(KVT_CUDA_INCLUDE_DIR)
		file(STRINGS ${KVT_CUDA_INCLUDE_DIR}/cuda.h cuda_line
		     REGEX "^#define CUDA_VERSION +[0-9]+")
		string(REGEX REPLACE ".* " "" cuda_version "${cuda_line}")
		if(cuda_version AND NOT cuda_version LESS 12080)
			set(KVT_HAVE_CUDA ON)
			math(EXPR cuda_major "${cuda_version} / 1000")
			math(EXPR cuda_minor "${cuda_version} % 1000 / 10")
			set(cuda_reason
			    "headers of CUDA ${cuda_major}.${cuda_minor} in ${KVT_CUDA_INCLUDE_DIR}")
		else()
			set(cuda_reason "${KVT_CUDA_INCLUDE_DIR}/cuda.h is of version "
				"${cuda_version}, expected 12080 or newer")
			string(REPLACE ";" "" cuda_reason "${cuda_reason}")
		endif()
	else()
		set(cuda_reason "no cuda.h in $CUDA_HOME/include nor /usr/local/cuda/include")
	endif()
	if(NOT KVT_HAVE_CUDA AND NOT KVT_CUDA STREQUAL "AUTO")
		message(FATAL_ERROR "KVT_CUDA=${KVT_CUDA}: ${cuda_reason}")
	endif()
endif()
if(KVT_HAVE_CUDA)
	message(STATUS "CUDA device: yes, ${cuda_reason}")
else()
	message(STATUS "CUDA device: left out, ${cuda_reason}")
endif()
