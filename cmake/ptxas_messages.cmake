# cmake -DNVCC=... -DSOURCE_DIR=... -DSOURCE=... -P ptxas_messages.cmake: fails where the assembler says of the fast kernels in
# SOURCE that it serialises asynchronous products (C7510 to C7520, each of which costs a factor), ignores setmaxnreg, spills
# registers or uses local memory.
execute_process(COMMAND ${NVCC} -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a --diag-suppress=554 -I${SOURCE_DIR}
    -DSAMESTATE_HAVE_CUDA=1 -Xptxas=-v -cubin -o ${OUTPUT} ${SOURCE}
  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: ${said}")
endif()
string(REGEX MATCHALL "[^\n]*(\\(C75[0-9]+\\)|[1-9][0-9]* bytes (stack frame|spill))[^\n]*" found "${said}")
string(REGEX MATCHALL "bytes stack frame" kernels "${said}")
list(LENGTH kernels count)
if(count EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: the assembler said nothing of any kernel, so nothing was checked: ${said}")
endif()
if(found)
  string(REPLACE ";" "\n" found "${found}")
  message(FATAL_ERROR "${SOURCE}:\n${found}")
endif()
message("${count} kernels: no serialised product, no spill")
