# SPDX-License-Identifier: Apache-2.0
# Tests against object stores and clients that others wrote, in tests/live/: programs test_*.c and
# scripts test_*.py. Each takes its server from the environment (tests/servers/rgw says how) and is
# skipped where there is none. Label live; those that any server must pass, as many of them as a slow
# one has time for, have the label live-any too.
set(live_dir ${test_dir}/live)

function(kvt_live_test name any_server)
	set(label live)
	if(any_server)
		list(APPEND label live-any)
	endif()
	add_test(NAME live.${name} COMMAND ${ARGN})
	set_tests_properties(live.${name} PROPERTIES LABELS "${label}" TIMEOUT 300
			     SKIP_RETURN_CODE 77 RUN_SERIAL TRUE ENVIRONMENT "${test_environment}")
endfunction()

# Debian's own Python first: that is where its clients are.
find_program(KVT_LIVE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(KVT_LIVE_PYTHON python3)

# Programs named test_* are tests, those with a main function are started by tests, all else is
# shared.
file(GLOB live_sources CONFIGURE_DEPENDS ${live_dir}/*.c)
set(live_shared "")
set(live_programs "")
foreach(source ${live_sources})
	get_filename_component(name ${source} NAME_WE)
	file(STRINGS ${source} has_main REGEX "^int main\\(")
	if(has_main)
		add_executable(live_${name} ${source})
		list(APPEND live_programs live_${name})
	else()
		list(APPEND live_shared ${source})
	endif()
endforeach()
add_library(kvtier_live_support STATIC ${live_shared})
kvt_test_program(kvtier_live_support)
foreach(program ${live_programs})
	target_link_libraries(${program} PRIVATE kvtier_live_support kvtier_test_support)
	kvt_test_program(${program})
endforeach()

kvt_live_test(contract.plain TRUE live_test_contract plain)
foreach(way signed tls head)
	kvt_live_test(contract.${way} FALSE live_test_contract ${way})
endforeach()
if(TARGET kvtier-backend-libs3)
	kvt_live_test(contract.libs3 FALSE live_test_contract libs3)
endif()
kvt_live_test(outage FALSE live_test_outage)
kvt_live_test(stress TRUE sh ${live_dir}/stress.sh)

if(KVT_LIVE_PYTHON AND TARGET kvtier_tool)
	file(GLOB live_scripts CONFIGURE_DEPENDS ${live_dir}/test_*.py)
	foreach(source ${live_scripts})
		get_filename_component(name ${source} NAME_WE)
		string(REGEX REPLACE "^test_" "" short ${name})
		set(any_server FALSE)
		if(short MATCHES "^(commands|clients)$")
			set(any_server TRUE)
		endif()
		kvt_live_test(${short} ${any_server} ${KVT_LIVE_PYTHON} ${source})
	endforeach()
	if(TARGET kvtier-backend-libs3)
		kvt_live_test(clients.libs3 FALSE ${CMAKE_COMMAND} -E env KVT_LIVE_SCHEME=s3+libs3
			      ${KVT_LIVE_PYTHON} ${live_dir}/test_clients.py)
	endif()
endif()
