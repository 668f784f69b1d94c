# Writes OUTPUT, a header with a hash of the sources of each CUDA kernel, "KERNEL=HASH ...". Evidence of a run
# on a device has the hashes of the kernels that ran, and is fresh while they are those of the build. A change
# makes the evidence stale for exactly those kernels that are compiled from it.
#
# A kernel is compiled from the units below and from what they include according to the preprocessor (-MM):
# the unit that registers its row, and those from which that one launches. Every build has the same list, with
# nvcc or without: the host's preprocessor runs like nvcc's (__CUDACC__ is defined, so that the emulation of a
# device is left out), and headers of the toolkit, which may be missing, are not sources of ours (-MG).
# tests/cli/kernel_sources_test.sh compares the lists with nvcc's own dependency files, and the table of units
# with the symbols that the linker finds.
#
# Run as a script at build time: -DOUTPUT= -DROOT= -DCXX= -DFLAGS= (those of nvcc, for the device's code) [-DUNITS=FILE] -P.
# UNITS names a file for a line per kernel, with its name and its units.
cmake_minimum_required(VERSION 3.25)
set(folder ${ROOT}/optimized)
get_filename_component(work ${OUTPUT} DIRECTORY)

# The units from which a unit launches, as paths in optimized/. In the recurrent family they depend on the
# form. The units that find the device and take times (device() of cuda_kernels.cu, host/measure.cu,
# host/meter.cu) compute no output.
set(recurrent call.cpp cuda/cuda_kernels.cu cuda/delta/token_fma_dense.cu cuda/delta/token_fma_dense_generic.cu)
set(of_chunks cuda/delta/chunk_mma_dense_generic.cu cuda/delta/chunk_fma_dense.cu cuda/delta/chunk_wgmma_dense.cu
  cuda/delta/chunk_wgmma_dense_trace.cu)
set(chunked call.cpp cuda/cuda_kernels.cu ${of_chunks})
set(sequence_parallel call.cpp ranks.cpp cuda/delta/ranks/sequence_parallel.cu cuda/delta/ranks/device_share.cu
  cuda/delta/ranks/exchange.cu ${of_chunks})
set(of_gradients cuda/backward/backward.cu call.cpp backward_call.cpp)
foreach(unit attention delta_net delta_net_layer dendritic_layer experts latent mixers retention_layer routing)
  set(${unit} cuda/products/product_library.cu)
endforeach()
list(APPEND delta_net_layer cuda/delta/chunk_mma_list.cu)
list(APPEND dendritic_layer cuda/delta/chunk_mma_list.cu cuda/delta/chunk_wgmma_list.cu)

# Finds our files in a dependency file, whose paths are as the preprocessor was given them: from ROOT.
function(files_listed list result)
  file(READ ${list} text)
  string(REGEX REPLACE "^[^:]*:|\\\\\n" "" text "${text}")
  string(REGEX MATCHALL "[^ \n]+" words "${text}")
  set(files "")
  foreach(word IN LISTS words)
    cmake_path(NORMAL_PATH word)
    if(EXISTS ${ROOT}/${word})
      list(APPEND files ${word})
    endif()
  endforeach()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# Lists our files from which a unit is compiled in FILES_<unit>; the preprocessor runs again if one of them is
# newer than its list.
function(list_files unit)
  if(DEFINED FILES_${unit})
    return()
  endif()
  string(REPLACE "/" "." name ${unit})
  set(list ${work}/kernel_sources/${name}.d)
  set(files "")
  if(EXISTS ${list})
    files_listed(${list} files)
  endif()
  set(stale ON)
  if(files)
    set(stale OFF)
    foreach(file IN LISTS files)
      if(${ROOT}/${file} IS_NEWER_THAN ${list}) # or is no more
        set(stale ON)
      endif()
    endforeach()
  endif()
  if(stale)
    file(MAKE_DIRECTORY ${work}/kernel_sources)
    execute_process(COMMAND ${CXX} -MM -MG -MF ${list} -std=c++20 -D__CUDACC__ -DSAMESTATE_HAVE_CUDA=1 -I. -x c++ optimized/${unit}
      WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE status ERROR_VARIABLE said)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "optimized/${unit}: ${CXX} -MM does not say what it includes: ${said}")
    endif()
    files_listed(${list} files)
  endif()
  set(FILES_${unit} ${files} PARENT_SCOPE)
endfunction()

# A file's hash leaves out comments, empty lines and the includes of our files, because those only decide
# which files are in the list. A kernel's hash is made from the hashes of its files in their own order,
# without names, so that a file may be moved and renamed. (They are kept in HASH_<file>, once each.)
function(hash_of_file file)
  if(DEFINED HASH_${file})
    return()
  endif()
  file(READ ${ROOT}/${file} text)
  string(REGEX REPLACE "[ \t]*//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "#include \"[^\"\n]*\"" "" text "${text}")
  string(REGEX REPLACE "\n[ \t\n]*\n" "\n" text "${text}")
  string(STRIP "${text}" text)
  string(SHA256 hash "${text}")
  set(HASH_${file} ${hash} PARENT_SCOPE)
endfunction()

set(kernels "")
set(table "")
macro(add_kernel kernel)
  set(lines "")
  set(of_kernel ${ARGN})
  foreach(unit IN LISTS of_kernel)
    list_files(${unit})
    foreach(file IN LISTS FILES_${unit})
      hash_of_file(${file})
      list(APPEND lines "${HASH_${file}}")
    endforeach()
  endforeach()
  list(SORT lines)
  list(REMOVE_DUPLICATES lines)
  string(SHA256 hash "${FLAGS} ${lines}")
  string(SUBSTRING ${hash} 0 16 hash)
  list(APPEND kernels ${kernel}=${hash})
  list(JOIN of_kernel " " line)
  string(APPEND table "${kernel} ${line}\n")
endmacro()

foreach(system gated_delta_rule delta_rule retention linear_attention)
  foreach(form recurrent chunked sequence_parallel)
    add_kernel(cuda.${system}.${form} ${${form}})
  endforeach()
  add_kernel(cuda.${system}.backward.chunked ${of_gradients})
endforeach()
# A unit of named tensors names its rows: row<Body>("system", "form", ...).
file(GLOB units RELATIVE ${folder} ${folder}/cuda/*/*.cu)
foreach(unit IN LISTS units)
  file(READ ${folder}/${unit} text)
  string(REGEX MATCHALL "[^a-z_]row<[^\"()]*>[(][ \n]*\"[a-z0-9_]+\",[ \n]*\"[a-z0-9_]+\"" rows "${text}")
  get_filename_component(stem ${unit} NAME_WE)
  foreach(row IN LISTS rows)
    string(REGEX MATCH "\"([a-z0-9_]+)\",[ \n]*\"([a-z0-9_]+)\"" names "${row}")
    add_kernel(cuda.${CMAKE_MATCH_1}.${CMAKE_MATCH_2} ${unit} ${${stem}})
  endforeach()
endforeach()

if(UNITS)
  file(WRITE ${UNITS} "${table}")
endif()
list(SORT kernels)
list(JOIN kernels " " kernels)
set(text "#pragma once\n\n// SHA-256 of each CUDA kernel's sources, first 16 digits.\n#define SAMESTATE_CUDA_SOURCES \"${kernels}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()
