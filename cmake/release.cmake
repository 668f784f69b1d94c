# The parts of the command that people install, as components: `command` (program and data), `pages` (manual
# page and completion, written by the command itself), `carried` (the libraries to which it is linked, with
# their licences) and `python` (the package, for a command that is not installed by pip).
# python/pyproject.toml makes a wheel of command, pages and carried; cpack makes a .deb of command, pages and
# python, and a tarball of all four. It needs samestate_program, the path of the program in the build folder.

# The pages are written during installation. A wheel has them in its data folder, which pip copies into the
# environment.
set(pages ${PROJECT_BINARY_DIR}/generated/pages)
set(shared share)
if(SKBUILD)
  set(shared ${SKBUILD_DATA_DIR}/share)
endif()
set(rows "help --man>samestate.1" "completion bash>samestate" "completion zsh>_samestate" "completion fish>samestate.fish")
install(CODE "
  file(MAKE_DIRECTORY \"${pages}\")
  set(rows \"${rows}\")
  foreach(row IN LISTS rows)
    string(REGEX MATCH \"(.*)>(.*)\" row \"\${row}\")
    set(file \"\${CMAKE_MATCH_2}\")
    separate_arguments(words UNIX_COMMAND \"\${CMAKE_MATCH_1}\")
    execute_process(COMMAND \"${samestate_program}\" \${words} OUTPUT_FILE \"${pages}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()" COMPONENT pages)
install(FILES ${pages}/samestate.1 DESTINATION ${shared}/man/man1 COMPONENT pages)
install(FILES ${pages}/samestate DESTINATION ${shared}/bash-completion/completions COMPONENT pages)
install(FILES ${pages}/_samestate DESTINATION ${shared}/zsh/site-functions COMPONENT pages)
install(FILES ${pages}/samestate.fish DESTINATION ${shared}/fish/vendor_completions.d COMPONENT pages)

option(SAMESTATE_CARRY "install the shared libraries of the command beside it, with the texts of their licences" OFF)
set(SAMESTATE_LICENSES "" CACHE PATH "a folder of licence texts, libfmt.txt for libfmt.so.9, for what no package manager knows")
if(SAMESTATE_CARRY)
  set(carried ${PROJECT_BINARY_DIR}/generated/carried)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DPROGRAM=${samestate_program}\" \"-DFOLDER=${carried}\"
    \"-DLICENSES=${SAMESTATE_LICENSES}\" -P \"${PROJECT_SOURCE_DIR}/cmake/carried_libraries.cmake\" COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT carried)
  # The program's RPATH is $ORIGIN/../lib.
  install(DIRECTORY ${carried}/ DESTINATION lib COMPONENT carried)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/samestate DESTINATION lib/python3/dist-packages COMPONENT python
  PATTERN __pycache__ EXCLUDE)

set(CPACK_PACKAGE_NAME samestate)
set(CPACK_PACKAGE_CONTACT "the authors of samestate")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Checks linear-attention kernels against references within derived error bounds")
set(CPACK_PACKAGE_FILE_NAME samestate-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, python3-numpy")
include(CPack)
