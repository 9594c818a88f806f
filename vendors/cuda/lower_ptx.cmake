# Make PTX acceptable to drivers older than the compiler: the kernels use nothing that PTX 7.8 (CUDA 11.8) lacks but a
# hint that newer compilers add for the assembler.
file(READ ${FILE} text)
string(REGEX REPLACE "[ \t]*\\.pragma \"used_bytes_mask [^\"]*\"\\;\n" "" text "${text}")
string(REGEX MATCH "\n\\.version ([0-9]+)\\.([0-9]+)" found "${text}")
if(CMAKE_MATCH_1 GREATER 7)
  string(REGEX REPLACE "\n\\.version [0-9]+\\.[0-9]+" "\n.version 7.8" text "${text}")
endif()
file(WRITE ${FILE} "${text}")
