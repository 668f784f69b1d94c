# cmake -DNVCC=... -DSOURCE_DIR=... -DSOURCE=... -DOUTPUT=... [-DLAUNCHER=...] [-DGENERIC=ON] [-DSECTION=FILE] -P ptxas_messages.cmake
# Fails where the assembler says of the fast kernels in SOURCE that it serialises asynchronous products (C7510 to C7520, each
# of which costs a factor), ignores setmaxnreg, spills registers or uses local memory; of GENERIC ones these may be. Registers
# and barriers of every kernel are the section that SECTION writes (cmake/census.sh). ALLOWED: a line of stack and spills, word for word, that one of the kernels may have.
# LAUNCHER: a compiler cache, which keeps what the assembler said with an object file, but of no cubin.
set(kind -cubin)
if(LAUNCHER)
  set(kind -c)
endif()
# No message names a folder, so that clones share what was said.
execute_process(COMMAND ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 ${LAUNCHER} ${NVCC} -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a --diag-suppress=554 -I${SOURCE_DIR}
    -DSAMESTATE_HAVE_CUDA=1 -Xptxas=-v ${kind} -o ${OUTPUT} ${SOURCE}
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
if(ALLOWED)
  list(FILTER found EXCLUDE REGEX "^ *${ALLOWED}$")
endif()
if(found AND NOT GENERIC)
  string(REPLACE ";" "\n" found "${found}")
  message(FATAL_ERROR "${SOURCE}:\n${found}")
endif()

# The section: a row a kernel, names without our namespaces and without arguments.
string(REGEX MATCHALL "Function properties for [^\n]*\n[^\n]*\n[^\n]*Used [0-9]+ registers, used [0-9]+ barriers" blocks "${said}")
set(rows "")
foreach(block IN LISTS blocks)
  string(REGEX MATCH "for ([^\n]*)\n *([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores.*Used ([0-9]+) registers, used ([0-9]+) barriers"
    all "${block}")
  set(figures "${CMAKE_MATCH_4} | ${CMAKE_MATCH_5} | ${CMAKE_MATCH_2} | ${CMAKE_MATCH_3}")
  execute_process(COMMAND c++filt ${CMAKE_MATCH_1} OUTPUT_VARIABLE name OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "^void |samestate::cuda::|\\(anonymous namespace\\)::" "" name "${name}")
  string(REGEX REPLACE "\\([^()]*\\)$" "" name "${name}")
  list(APPEND rows "| `${name}` | ${figures} |")
endforeach()
list(LENGTH rows written)
if(NOT written EQUAL count)
  message(FATAL_ERROR "${SOURCE}: ${count} kernels, and the figures of ${written} were understood")
endif()
list(SORT rows)
string(REPLACE ";" "\n" rows "${rows}")
file(RELATIVE_PATH file ${SOURCE_DIR}/optimized/cuda ${SOURCE})
set(section "## ${file}\n\n| kernel | registers | barriers | bytes of stack | bytes spilled |\n|---|---|---|---|---|\n${rows}\n")
if(SECTION)
  file(WRITE ${SECTION} "${section}")
endif()
if(GENERIC)
  message("${count} kernels")
else()
  message("${count} kernels: no serialised product, no spill")
endif()
