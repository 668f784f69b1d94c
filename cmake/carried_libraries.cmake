# Copies the shared libraries to which a program is linked into FOLDER, and the texts of their licences into
# FOLDER/licenses (libfmt.so.9.copyright), so that wheel and tarball run on machines without these libraries.
# It leaves out what every Linux has, or what only the system may provide: the C and C++ runtimes and the
# driver of a GPU.
#
# A licence is the text that dpkg or rpm has for the file, or a text LICENSES/libfmt.txt; a library without
# one is not passed on.
#
# cmake -DPROGRAM= -DFOLDER= [-DLICENSES=] -P carried_libraries.cmake
cmake_minimum_required(VERSION 3.25)

# Finds the paths of the texts under which a library of this machine may be passed on.
function(licences_of library result)
  get_filename_component(name ${library} NAME)
  string(REGEX REPLACE "[.]so.*$" "" stem ${name})
  if(LICENSES)
    file(GLOB found ${LICENSES}/${stem}.*)
  endif()
  get_filename_component(real ${library} REALPATH)
  # A package lists its files either below /usr or without it, depending on which of the two paths is the
  # link.
  string(REGEX REPLACE "^/usr/" "/" short ${real})
  foreach(path ${library} ${real} /usr${library} ${short})
    if(NOT found)
      execute_process(COMMAND dpkg -S ${path} OUTPUT_VARIABLE said ERROR_QUIET)
      if(said MATCHES "^([^:\n]+):")
        file(GLOB found /usr/share/doc/${CMAKE_MATCH_1}/copyright)
      endif()
    endif()
    if(NOT found)
      execute_process(COMMAND rpm -qf ${path} OUTPUT_VARIABLE package ERROR_QUIET RESULT_VARIABLE status)
      if(status EQUAL 0)
        string(STRIP "${package}" package)
        execute_process(COMMAND rpm -q --licensefiles ${package} OUTPUT_VARIABLE said ERROR_QUIET)
        string(REGEX MATCHALL "[^\n]+" found "${said}")
      endif()
    endif()
  endforeach()
  # Debian's files refer to the longer texts by their path.
  set(common)
  foreach(path ${found})
    file(STRINGS ${path} lines REGEX "/usr/share/common-licenses/")
    foreach(line IN LISTS lines)
      string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]" paths "${line}")
      list(APPEND common ${paths})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES common)
  foreach(path ${common})
    if(EXISTS ${path})
      list(APPEND found ${path})
    endif()
  endforeach()
  if(NOT found)
    message(FATAL_ERROR "${library} would be passed on, and neither dpkg nor rpm knows its licence: put the text into a folder "
      "as ${stem}.txt and name the folder by SAMESTATE_LICENSES")
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR missing
  CONFLICTING_DEPENDENCIES_PREFIX twice PRE_EXCLUDE_REGEXES "^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|stdc[+][+]|gcc_s|cuda))[-.]")
if(missing)
  message(FATAL_ERROR "${PROGRAM}: ${missing} not found")
endif()
# A library that is both in the program's own search path and in the system's is loaded from the program's.
get_filename_component(prefix ${PROGRAM}/../.. ABSOLUTE)
foreach(name ${twice_FILENAMES})
  list(GET twice_${name} 0 own)
  foreach(path ${twice_${name}})
    get_filename_component(whole ${path} ABSOLUTE)
    string(FIND ${whole} ${prefix}/ at)
    if(at EQUAL 0)
      set(own ${path})
    endif()
  endforeach()
  list(APPEND libraries ${own})
endforeach()
file(REMOVE_RECURSE ${FOLDER})
foreach(library ${libraries})
  get_filename_component(name ${library} NAME)
  licences_of(${library} texts)
  file(MAKE_DIRECTORY ${FOLDER}/licenses)
  get_filename_component(real ${library} REALPATH)
  file(COPY_FILE ${real} ${FOLDER}/${name})
  foreach(text ${texts})
    get_filename_component(title ${text} NAME)
    file(COPY_FILE ${text} ${FOLDER}/licenses/${name}.${title})
  endforeach()
endforeach()
