# Writes OUTPUT, a header with the hashes of the CUDA kernels' sources (contents in order of name): evidence of a run on a device
# holds the hashes it ran, and is fresh while its kernel's is the build's. Three, "FAMILY+OPERATORS+RANKS": the recurrent family, the
# kernels of named tensors with what they share with it, and the family's over ranks with all that they run.
# Run as a script at build time: -DOUTPUT= -DROOT= -P.
function(hash_of result)
  set(all "")
  list(SORT ARGN)
  foreach(file IN LISTS ARGN)
    # A comment changes nothing that runs.
    file(READ ${ROOT}/${file} text)
    string(REGEX REPLACE "[ \t]*//[^\n]*" "" text "${text}")
    string(SHA256 hash "${text}")
    string(APPEND all "${file} ${hash}\n")
  endforeach()
  string(SHA256 hash "${all}")
  string(SUBSTRING ${hash} 0 16 hash)
  set(${result} ${hash} PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/optimized/cuda/*.cu ${ROOT}/optimized/cuda/*.cuh ${ROOT}/optimized/cuda/*.h)
# What the host alone compiles in their place does not run on a device.
list(FILTER files EXCLUDE REGEX "/(emulation|emulated_[a-z]+)[.]h$")
set(operators ${files})
list(FILTER operators INCLUDE REGEX "^optimized/cuda/operators/")
set(hopper ${files})
list(FILTER hopper INCLUDE REGEX "^optimized/cuda/hopper/")
set(ranks ${files})
list(FILTER ranks INCLUDE REGEX "^optimized/cuda/ranks/")
list(FILTER files EXCLUDE REGEX "^optimized/cuda/(operators|ranks)/")
list(APPEND files cmake/cuda.cmake optimized/call.cpp optimized/call.h optimized/kernel.h reference/contract.h reference/view.h)
hash_of(family ${files})
hash_of(operators ${operators} ${hopper} optimized/cuda/intrinsics.cuh optimized/cuda/device_memory.cuh optimized/cuda/prepare.h
  optimized/operator_kernel.h optimized/slots.h cmake/cuda.cmake reference/contract.h)
hash_of(ranks ${files} ${ranks} optimized/cuda/operators/grid.cuh optimized/ranks.cpp optimized/ranks.h)
set(text "#pragma once\n\n// SHA-256 of the CUDA kernels' sources, first 16 digits each.\n#define SAMESTATE_CUDA_SOURCES \"${family}+${operators}+${ranks}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()
