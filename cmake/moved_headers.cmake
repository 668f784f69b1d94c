# Writes the files into OUTPUT that tests/oracles/systems/moved_points_test.cpp compares with the tree's own:
# copies of the headers and of the row of two systems under other names, with every line at another number, in
# a namespace of their own.
# Run as a script at build time: -DOUTPUT= -DROOT= -P.
set(headers reference/softmax_attention.h reference/online_softmax.h reference/layers/gated_attention.h
  oracles/systems/gated_attention_stages.h)
set(files ${headers} oracles/systems/softmax_attention.cpp)
foreach(file IN LISTS files)
  file(READ ${ROOT}/${file} text)
  foreach(header IN LISTS headers)
    get_filename_component(name ${header} NAME)
    string(REPLACE "#include \"${header}\"" "#include \"moved_${name}\"" text "${text}")
  endforeach()
  string(REPLACE "namespace samestate {" "namespace samestate::moved {" text "${text}")
  string(REPLACE "\n" "\n\n" text "${text}")
  get_filename_component(name ${file} NAME)
  file(WRITE ${OUTPUT}/moved_${name} "// A copy of ${file}.\n\n\n${text}")
endforeach()
