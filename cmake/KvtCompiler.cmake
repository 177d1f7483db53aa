# SPDX-License-Identifier: Apache-2.0
# Language, warnings and sanitizers of everything that is built in this tree.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Linux calls beyond C11. Defined empty, so that a file that defines it itself does not clash.
add_compile_definitions(_GNU_SOURCE= _FILE_OFFSET_BITS=64)
add_compile_options(
	-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
	-Wno-missing-field-initializers)
if(KVT_WERROR)
	add_compile_options(-Werror)
endif()

if(KVT_SANITIZE STREQUAL "address")
	add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
			    -fno-omit-frame-pointer)
	add_link_options(-fsanitize=address,undefined)
elseif(KVT_SANITIZE STREQUAL "thread")
	add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
	add_link_options(-fsanitize=thread)
elseif(KVT_SANITIZE)
	message(FATAL_ERROR "KVT_SANITIZE: '${KVT_SANITIZE}', expected empty, address or thread")
endif()

if(KVT_FUZZ)
	if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
		message(FATAL_ERROR "KVT_FUZZ: libFuzzer comes with clang, the compiler is "
				    "${CMAKE_C_COMPILER_ID}")
	endif()
	if(NOT KVT_SANITIZE STREQUAL "address")
		# What is no fuzz target is instrumented too, and finds that code's functions there.
		message(FATAL_ERROR "KVT_FUZZ: KVT_SANITIZE is '${KVT_SANITIZE}', expected address")
	endif()
	add_compile_options(-fsanitize=fuzzer-no-link)
endif()
