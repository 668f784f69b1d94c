# Writes OUTPUT, a header with each of FILES as a string constant samestate::assets::NAME, where NAME is the
# file's name without its extension. Run as a script at build time: -DOUTPUT= "-DFILES=a;b" -P. A raw literal
# ends only at its delimiter.
set(delimiter embedded)
set(text "#pragma once\n\nnamespace samestate::assets {\n")
foreach(path IN LISTS FILES)
  file(READ ${path} content)
  string(FIND "${content}" ")${delimiter}\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${path} holds )${delimiter}\": choose another delimiter in cmake/embed.cmake")
  endif()
  get_filename_component(name ${path} NAME_WE)
  string(APPEND text "\ninline constexpr const char* ${name} = R\"${delimiter}(${content})${delimiter}\";\n")
endforeach()
string(APPEND text "\n}  // namespace samestate::assets\n")
file(WRITE ${OUTPUT} "${text}")
