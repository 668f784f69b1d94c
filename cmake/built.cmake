# Packs the command of SAMESTATE_BUILD, a build folder of this repository, without compiling: the files of a
# release from one build, and a wheel of the build that the tests have.
set(samestate_program ${SAMESTATE_BUILD}/cli/samestate)
if(NOT EXISTS ${samestate_program})
  message(FATAL_ERROR "SAMESTATE_BUILD=${SAMESTATE_BUILD}: there is no cli/samestate in it; name a build folder, as build/release")
endif()
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${SAMESTATE_BUILD}\" --component command --strip
  --prefix \"\${CMAKE_INSTALL_PREFIX}\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT command)
add_custom_target(samestate) # what python/pyproject.toml asks to be built
include(release)
