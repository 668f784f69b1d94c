# The compiler settings of all our targets; a target takes them by linking samestate_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# CMake 3.25 takes the C++ standard for that of CUDA but knows no flag for it; cmake/cuda.cmake passes
# -std=c++20.
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND PROJECT_IS_TOP_LEVEL)
  foreach(language CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      # Without the first, ccache rejects units that are compiled with a precompiled header; with the second,
      # clones and work trees share compiled units.
      set(CMAKE_${language}_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE_PROGRAM})
    endif()
  endforeach()
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PROJECT_BINARY_DIR}/generated/samestate_version.h @ONLY)

add_library(samestate_options INTERFACE)
target_compile_features(samestate_options INTERFACE cxx_std_20)
target_include_directories(samestate_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:include/samestate>)
# These warnings are for us: users of the package keep their own. They are off for builds of the command
# alone, which may use a compiler that warns about more.
option(SAMESTATE_WARNINGS "compile with warnings, which are errors" ON)
if(SAMESTATE_WARNINGS)
  target_compile_options(samestate_options INTERFACE
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wno-sign-conversion;-Werror>>)
endif()
# GCC 12 at -O3 sees overlaps and overreads in its own std::string and std::vector (GCC PR 105651, 105329, 107852).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(samestate_options INTERFACE
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overread;-Wno-stringop-overflow>>)
endif()
# Installed with the package: Eigen's alignment follows -march, so both sides of a call must be built with the same.
if(SAMESTATE_MARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(samestate_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${SAMESTATE_MARCH}>)
endif()
# The compiler may not fuse a*b+c by itself: if a kernel wants an FMA, its source says so, and every build
# gives the same bits.
target_compile_options(samestate_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(SAMESTATE_SANITIZE)
  target_compile_options(samestate_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=undefined;-fno-omit-frame-pointer;-g1>
    # GCC 12 reports the instrumented std::regex as uninitialised.
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  target_link_options(samestate_options INTERFACE -fsanitize=address,undefined)
endif()

# For code that runs small inputs once, or hardly runs at all, so that its main cost is its compilation: -Og takes
# a fifth less of it than -O1, and no more than -O0. A level given as a further argument is for code that does
# run for a while.
function(samestate_compile_quickly target)
  set(level ${ARGN} -Og)
  list(GET level 0 level)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:${level}>)
endfunction()

# Precompiles the system headers that nearly every unit of a target reads, which saves a second a unit; joined
# sources (below) share them anyway. It is off where a missing #include is to be found (presets dev, asan);
# headers.* show that every header compiles alone.
option(SAMESTATE_PCH "precompile headers of the system" OFF)
function(samestate_precompile target)
  if(NOT SAMESTATE_PCH)
    return()
  endif()
  set(headers)
  foreach(header algorithm array cmath cstdint functional limits map memory optional set span string string_view vector ${ARGN})
    list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
  endforeach()
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# Compiles some eight sources of a folder as one unit, which reads and instantiates what they share only once
# and saves a third of a build. The grouping follows from their names and not from their number, so that a new
# source does not move others. It is off where every source is to compile alone (presets dev, asan).
option(SAMESTATE_JOIN "compile several sources of a target as one unit" OFF)
if(SAMESTATE_JOIN AND SAMESTATE_TESTS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects garbage from 128 MB on, which costs such units 2 to 8 % of their time; waiting until 1 GB costs
  # up to 0.4 GB of memory, so builds of the command alone, which users make, do not do it.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
function(samestate_join target)
  if(NOT SAMESTATE_JOIN)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  set(folders)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    list(APPEND folders ${folder})
  endforeach()
  foreach(source folder IN ZIP_LISTS sources folders)
    set(of_folder ${folders})
    list(FILTER of_folder INCLUDE REGEX "^${folder}$")
    list(LENGTH of_folder count)
    set(groups 1)
    while(count GREATER 12)
      math(EXPR groups "2 * ${groups}")
      math(EXPR count "${count} / 2")
    endwhile()
    get_filename_component(name ${source} NAME)
    string(MD5 hash ${name})
    string(SUBSTRING ${hash} 0 6 hash)
    math(EXPR group "0x${hash} % ${groups}")
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP "${folder}_${group}")
  endforeach()
endfunction()
