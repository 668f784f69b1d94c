# Builds the CUDA kernels if nvcc is found and SAMESTATE_CUDA is ON; everything else builds without it.
# Included by optimized/CMakeLists.txt after samestate_optimized exists. The flags that decide the device's
# code are part of each kernel's hash (cmake/kernel_sources.cmake), in builds without nvcc too. CMake 3.25
# does not know C++20 for CUDA. The code is native for sm_90a, and PTX for later architectures.
set(device_flags -std=c++20 -gencode=arch=compute_90a,code=sm_90a)
set(ptx_flag -gencode=arch=compute_90,code=compute_90)
set_property(GLOBAL PROPERTY SAMESTATE_DEVICE_FLAGS "${device_flags};${ptx_flag}")
# Links to the few targets whose sources ask whether the kernels exist, so that all others compile alike with
# and without them.
add_library(samestate_has_cuda INTERFACE)
if(NOT SAMESTATE_CUDA)
  return()
endif()
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(SAMESTATE_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(SAMESTATE_NVCC)
    set(CMAKE_CUDA_COMPILER ${SAMESTATE_NVCC})
  endif()
endif()
# The targets are named below, not by CMake.
set(CMAKE_CUDA_ARCHITECTURES OFF)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "CUDA kernels: not built (no nvcc)")
  return()
endif()
enable_language(CUDA)
# nvcc's -O is the host's level alone, and what launches kernels is not worth optimising.
set(CMAKE_CUDA_FLAGS_RELEASE "-DNDEBUG -Xcompiler=-Og")
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA kernels: built with ${CMAKE_CUDA_COMPILER}")
# The language is enabled in this folder, and only here can its compiler be seen.
set_property(GLOBAL PROPERTY SAMESTATE_NVCC ${CMAKE_CUDA_COMPILER})

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)
target_sources(samestate_optimized PRIVATE ${cuda_sources})
target_compile_definitions(samestate_has_cuda INTERFACE SAMESTATE_HAVE_CUDA=1)
target_compile_definitions(samestate_optimized PRIVATE SAMESTATE_HAVE_CUDA=1)
target_link_libraries(samestate_optimized PRIVATE CUDA::cudart_static)
# The assembler reports its figures while it compiles, so that no test has to compile a kernel again to read
# them.
set_target_properties(samestate_optimized PROPERTIES CUDA_ARCHITECTURES OFF
  CUDA_COMPILER_LAUNCHER "sh;${PROJECT_SOURCE_DIR}/cmake/keep_messages.sh;${CMAKE_CUDA_COMPILER_LAUNCHER}")
# 554: nvcc mistakes the constrained conversion of a view for a conversion to itself.
target_compile_options(samestate_optimized PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:${device_flags} $<$<BOOL:${SAMESTATE_PTX}>:${ptx_flag}>
    --diag-suppress=554 -Werror=all-warnings -Xptxas=-v
    -Xcompiler=-Wall,-Wextra,-Wconversion,-Wno-sign-conversion,-Werror>)
