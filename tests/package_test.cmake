# The package as its user meets it: install, build examples/kernel_plugin against the installed tree, gate its kernels
# (exit 0), then the same with their planted bugs (exit 1). Also the libraries: find_package(samestate) without
# components, one program linked against all of them.
# The installed tree is moved first, so that nothing may lean on where it was made; examples/reference_use is built on it.
# cmake -DSOURCE_DIR= -DBUILD_DIR= -DWORK_DIR= -DGENERATOR= -DCXX= [-DNVCC=] -P package_test.cmake
cmake_minimum_required(VERSION 3.25)
set(prefix ${WORK_DIR}/prefix)
set(kernels my.gated_delta_rule.recurrent my.rms_norm.fused)
file(REMOVE_RECURSE ${WORK_DIR})

function(run_or_stop)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "exit ${status}, 0 expected")
  endif()
endfunction()

function(configure_and_build source build)
  run_or_stop(${CMAKE_COMMAND} -S ${source} -B ${build} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_PREFIX_PATH=${prefix} ${ARGN})
  run_or_stop(${CMAKE_COMMAND} --build ${build})
endfunction()

function(gate expected plugin)
  foreach(kernel ${kernels})
    execute_process(COMMAND ${prefix}/bin/samestate gate --plugin ${plugin} --kernel ${kernel} --max-cases 200
      COMMAND_ECHO STDOUT RESULT_VARIABLE status)
    if(NOT status EQUAL expected)
      message(FATAL_ERROR "samestate gate on ${plugin}, ${kernel}: exit ${status}, ${expected} expected")
    endif()
  endforeach()
endfunction()

run_or_stop(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# An installed file that names the source or build tree would break on the next machine.
file(GLOB_RECURSE installed ${prefix}/*.cmake ${prefix}/*.h)
foreach(file ${installed})
  file(READ ${file} text)
  foreach(tree ${SOURCE_DIR} ${BUILD_DIR})
    string(FIND "${text}" "${tree}/" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${file} names ${tree}")
    endif()
  endforeach()
endforeach()

# The command carries what it needs, and knows no path of this machine: it is moved to where nothing else is.
file(STRINGS ${prefix}/bin/samestate paths REGEX "${SOURCE_DIR}")
if(paths)
  message(FATAL_ERROR "the command names the source tree: ${paths}")
endif()
file(RENAME ${prefix} ${WORK_DIR}/moved)
set(prefix ${WORK_DIR}/moved)
foreach(data corpus/gated_delta_rule.txt evidence)
  if(NOT EXISTS ${prefix}/share/samestate/${data})
    message(FATAL_ERROR "share/samestate/${data} was not installed")
  endif()
endforeach()
file(STRINGS ${prefix}/share/samestate/corpus/retention.txt first REGEX "^v1 " LIMIT_COUNT 1)
execute_process(COMMAND ${prefix}/bin/samestate gate --device cpu --system retention --list --max-cases 400
  OUTPUT_VARIABLE plan RESULT_VARIABLE status)
string(FIND "${plan}" "${first}" found)
if(NOT status EQUAL 0 OR NOT found EQUAL 0)
  message(FATAL_ERROR "the installed corpus is not replayed first: exit ${status}, ${first}")
endif()

# A kernel in C, of one file that no CMake builds.
run_or_stop(cc -std=c99 -Wall -Wextra -Wpedantic -Werror -O2 -shared -fPIC -I${prefix}/include
  ${SOURCE_DIR}/examples/subject_c/my_subject.c -o ${WORK_DIR}/libmine.so -lm)
execute_process(COMMAND ${prefix}/bin/samestate gate --subject ${WORK_DIR}/libmine.so
  --kernel mine.gated_delta_rule.recurrent --max-cases 200 COMMAND_ECHO STDOUT RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "samestate gate on examples/subject_c: exit ${status}, 0 expected")
endif()

# The same, built against the header as it was first installed: fields were added since.
file(MAKE_DIRECTORY ${WORK_DIR}/first/samestate)
file(COPY_FILE ${SOURCE_DIR}/tests/subjects/first_subject_header.txt ${WORK_DIR}/first/samestate/subject.h)
run_or_stop(cc -std=c99 -O2 -shared -fPIC -I${WORK_DIR}/first ${SOURCE_DIR}/examples/subject_c/my_subject.c
  -o ${WORK_DIR}/libfirst.so -lm)
execute_process(COMMAND ${prefix}/bin/samestate gate --subject ${WORK_DIR}/libfirst.so --max-cases 200
  COMMAND_ECHO STDOUT RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "samestate gate on a library of the first header: exit ${status}, 0 expected")
endif()

# A kernel in CUDA that is given device memory: nvcc alone builds it. Without a device its cases are skipped, all of them.
if(NVCC)
  run_or_stop(${NVCC} -O2 -shared -Xcompiler -fPIC -I${prefix}/include
    ${SOURCE_DIR}/examples/subject_cuda/my_subject.cu -o ${WORK_DIR}/libcuda_mine.so)
  execute_process(COMMAND ${prefix}/bin/samestate gate --subject ${WORK_DIR}/libcuda_mine.so --max-cases 200
    COMMAND_ECHO STDOUT OUTPUT_VARIABLE said ECHO_OUTPUT_VARIABLE RESULT_VARIABLE status)
  if(NOT status EQUAL 0 AND NOT (status EQUAL 77 AND said MATCHES "no CUDA driver|sees no device"))
    message(FATAL_ERROR "samestate gate on examples/subject_cuda: exit ${status}, 0 or 77 (no device) expected")
  endif()
endif()

# The references alone: a program in float64, 50 digits and intervals, linked through the one target. A component that
# is none is named.
configure_and_build(${SOURCE_DIR}/examples/reference_use ${WORK_DIR}/reference_use)
run_or_stop(${WORK_DIR}/reference_use/reference_use)
file(WRITE ${WORK_DIR}/nosuch/CMakeLists.txt [[
cmake_minimum_required(VERSION 3.25)
project(nosuch LANGUAGES CXX)
find_package(samestate 0.1 REQUIRED COMPONENTS reference nosuch)
]])
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR}/nosuch -B ${WORK_DIR}/nosuch/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix} ERROR_VARIABLE said RESULT_VARIABLE status)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(status EQUAL 0 OR NOT said MATCHES "no component nosuch; name some of: .*reference")
  message(FATAL_ERROR "a component that is none is not named: ${said}")
endif()

configure_and_build(${SOURCE_DIR}/examples/kernel_plugin ${WORK_DIR}/plugin)
gate(0 ${WORK_DIR}/plugin/my_kernel.so)
configure_and_build(${SOURCE_DIR}/examples/kernel_plugin ${WORK_DIR}/plugin_fault -DFAULT=ON)
gate(1 ${WORK_DIR}/plugin_fault/my_kernel.so)

file(WRITE ${WORK_DIR}/user/CMakeLists.txt [[
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(samestate 0.1 REQUIRED)
add_executable(user main.cpp)
target_link_libraries(user PRIVATE samestate::fuzz samestate::reports)
]])
file(WRITE ${WORK_DIR}/user/main.cpp [[
#include "optimized/kernel.h"
#include "reports/records/summary.h"
#include "samestate_version.h"

int main() {
  const samestate::Summary summary = samestate::summarise({});
  return samestate::kernels().empty() || samestate::counts_line(summary) != "no case" || SAMESTATE_VERSION[0] == 0;
}
]])
configure_and_build(${WORK_DIR}/user ${WORK_DIR}/user/build)
run_or_stop(${WORK_DIR}/user/build/user)
