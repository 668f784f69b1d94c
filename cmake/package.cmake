# find_package(samestate 0.1): the libraries as samestate::reference, samestate::oracles, ..., the headers under
# include/samestate. COMPONENTS optimized_interface selects only the kernel interface, which needs no other
# package, and COMPONENTS reference the equations, which need Eigen, Boost, mpfi, mpfr and gmp.
add_library(samestate_optimized_interface INTERFACE)
target_compile_features(samestate_optimized_interface INTERFACE cxx_std_20)
target_include_directories(samestate_optimized_interface INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:include/samestate>)

set(floors reference optimized oracles fixtures harness reports measure fuzz)
set(libraries samestate_options)
set(folders ${floors})
if(NOT SAMESTATE_JUDGE_ONLY)
  list(APPEND folders oracles/proofs)
endif()
foreach(folder ${folders})
  get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type MATCHES "^(STATIC|SHARED|INTERFACE)_LIBRARY$")
      list(APPEND libraries ${target})
    endif()
  endforeach()
endforeach()

foreach(target ${libraries} samestate_optimized_interface)
  string(REGEX REPLACE "^samestate_" "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  add_library(samestate::${name} ALIAS ${target})
  # A folder states its include path as the source tree; installed, it is include/samestate of samestate_options.
  get_target_property(paths ${target} INTERFACE_INCLUDE_DIRECTORIES)
  if(paths)
    list(TRANSFORM paths REPLACE "^${PROJECT_SOURCE_DIR}$" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${paths}")
  endif()
endforeach()

if(NOT SAMESTATE_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/samestate)

# The command looks in ../share/samestate, relative to its own folder, for what it replays and shows
# (cli/data_folder.h). COMPONENT command is all that a wheel of python/ contains. Its libraries are found by
# each other through RPATH, because a RUNPATH is not used for the dependencies of a library.
set_target_properties(samestate PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
target_link_options(samestate PRIVATE -Wl,--disable-new-dtags)
install(TARGETS samestate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
if(TARGET samestate_mpi)
  install(TARGETS samestate_mpi RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
set(data ${PROJECT_SOURCE_DIR}/fuzz/corpus ${PROJECT_SOURCE_DIR}/reports/evidence)
if(NOT SAMESTATE_JUDGE_ONLY)
  list(APPEND data ${PROJECT_SOURCE_DIR}/fixtures/golden) # of the verb goldens
endif()
install(DIRECTORY ${data} DESTINATION ${CMAKE_INSTALL_DATADIR}/samestate COMPONENT command)
set(samestate_program $<TARGET_FILE:samestate>)
include(release)
# COMPONENTS reference is the headers and the libraries of their scalars: a set of targets of its own.
set(reference_part samestate_options samestate_reference)
list(REMOVE_ITEM libraries ${reference_part})
target_link_libraries(samestate_reference INTERFACE $<INSTALL_INTERFACE:samestate_multiprecision>)
install(TARGETS ${reference_part} EXPORT samestate_reference)
install(TARGETS ${libraries} EXPORT samestate ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS samestate_optimized_interface EXPORT samestate_interface)
foreach(folder ${floors})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION include/samestate FILES_MATCHING PATTERN "*.h"
    PATTERN golden EXCLUDE PATTERN corpus EXCLUDE PATTERN evidence EXCLUDE PATTERN cuda EXCLUDE)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/generated/samestate_version.h DESTINATION include/samestate)
# <samestate/subject.h>, for C.
install(FILES ${PROJECT_SOURCE_DIR}/optimized/subject.h DESTINATION include/samestate)

get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
set(SAMESTATE_NEEDS_CUDA FALSE)
if(CUDA IN_LIST languages)
  set(SAMESTATE_NEEDS_CUDA TRUE)
endif()
set(SAMESTATE_COMPONENTS ${libraries} ${reference_part} samestate_optimized_interface)
list(TRANSFORM SAMESTATE_COMPONENTS REPLACE "^samestate_" "")
list(SORT SAMESTATE_COMPONENTS)
list(JOIN SAMESTATE_COMPONENTS ", " SAMESTATE_COMPONENTS)
install(EXPORT samestate NAMESPACE samestate:: FILE samestateTargets.cmake DESTINATION ${package_dir})
install(EXPORT samestate_reference NAMESPACE samestate:: FILE samestateReferenceTargets.cmake
  DESTINATION ${package_dir})
install(EXPORT samestate_interface NAMESPACE samestate:: FILE samestateInterfaceTargets.cmake
  DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/samestateConfig.cmake.in
  ${PROJECT_BINARY_DIR}/generated/samestateConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/samestateConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/samestateConfig.cmake
  ${PROJECT_BINARY_DIR}/generated/samestateConfigVersion.cmake ${PROJECT_SOURCE_DIR}/cmake/system_headers.cmake
  DESTINATION ${package_dir})
