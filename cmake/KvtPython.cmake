# SPDX-License-Identifier: Apache-2.0
# The Python package: its wheel (target wheel, into the build folder's wheel/), and its tests, one for
# each bindings/python/tests/**/test_*. Label python. They use the shared library and the S3 server of
# this build, so a sanitizer's runtime would have to be in the interpreter: plain builds only.
set(python_dir ${PROJECT_SOURCE_DIR}/bindings/python)

# Debian's own Python first: that is where its numpy and pytest are.
find_program(KVT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(KVT_PYTHON python3)

if(KVT_PYTHON)
	add_custom_target(wheel
			  COMMAND ${KVT_PYTHON} -m pip wheel --no-build-isolation --no-deps
				  --wheel-dir ${PROJECT_BINARY_DIR}/wheel ${python_dir}
			  COMMENT "Building the Python wheel" VERBATIM USES_TERMINAL)
endif()

if(KVT_PYTHON AND KVT_TESTS AND NOT KVT_SANITIZE)
	file(GLOB_RECURSE python_tests CONFIGURE_DEPENDS ${python_dir}/tests/test_*.py
	     ${python_dir}/tests/test_*.sh)
	foreach(source ${python_tests})
		file(RELATIVE_PATH name ${python_dir}/tests ${source})
		string(REGEX REPLACE "\\.(py|sh)$" "" name ${name})
		string(REPLACE "test_" "" name ${name})
		string(REPLACE "/" "." name ${name})
		if(source MATCHES "\\.sh$")
			add_test(NAME python.${name} COMMAND sh ${source})
		else()
			add_test(NAME python.${name}
				 COMMAND ${KVT_PYTHON} -B ${python_dir}/tests/run.py ${source})
		endif()
		set_tests_properties(python.${name} PROPERTIES LABELS python TIMEOUT 600
				     SKIP_RETURN_CODE 77
				     ENVIRONMENT "${test_environment};KVT_PYTHON=${KVT_PYTHON}")
	endforeach()
endif()
