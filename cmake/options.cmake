# Compiler settings of every target of ours; a target takes them by linking samestate_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(samestate_options INTERFACE)
target_compile_options(samestate_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Werror>)
if(SAMESTATE_MARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(samestate_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${SAMESTATE_MARCH}>)
endif()
# The compiler may not fuse a*b+c on its own: where a kernel wants an FMA it says so, and every build gives the same bits.
target_compile_options(samestate_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(SAMESTATE_SANITIZE)
  target_compile_options(samestate_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1>)
  target_link_options(samestate_options INTERFACE -fsanitize=address,undefined)
endif()
