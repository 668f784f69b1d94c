# Writes OUTPUT, a header with the hash of the CUDA kernels' sources (FILES, contents in order of name): evidence of a run on
# a device holds the hash it ran, and is fresh while the two agree. Run as a script at build time: -DOUTPUT= -DROOT= -P.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/optimized/cuda/*.cu ${ROOT}/optimized/cuda/*.cuh ${ROOT}/optimized/cuda/*.h)
# What the host alone compiles in their place does not run on a device.
list(FILTER files EXCLUDE REGEX "/(emulation|emulated_[a-z]+)[.]h$")
# The kernels of named tensors have no evidence yet (reports/records/evidence.cpp), and are no part of the others'.
list(FILTER files EXCLUDE REGEX "^optimized/cuda/operators")
list(APPEND files cmake/cuda.cmake optimized/call.cpp optimized/call.h optimized/kernel.h reference/contract.h
  reference/view.h)
list(SORT files)
set(all "")
foreach(file IN LISTS files)
  file(SHA256 ${ROOT}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
set(text "#pragma once\n\n// SHA-256 of the CUDA kernels' sources, first 16 digits.\n#define SAMESTATE_CUDA_SOURCES \"${hash}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()
