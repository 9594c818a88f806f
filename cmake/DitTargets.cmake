# Shared settings of every library and program: warnings, sanitizers, output folder, install rule.

set(DIT_LIBRARY_DIR ${CMAKE_CURRENT_BINARY_DIR}/lib)
if(DIT_INPLACE)
  set(DIT_LIBRARY_DIR ${CMAKE_CURRENT_SOURCE_DIR}/python/ditorch/lib)
endif()

# Warnings and sanitizers for one target.
function(dit_set_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  get_target_property(language ${target} LINKER_LANGUAGE)
  if(NOT language STREQUAL "CXX")
    target_compile_options(${target} PRIVATE -Wpedantic)
  endif()
  if(DIT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(DIT_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  elseif(DIT_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  elseif(DIT_SANITIZE)
    message(FATAL_ERROR "DIT_SANITIZE is '${DIT_SANITIZE}'; valid: address, thread, or empty")
  endif()
endfunction()

# A shared library that belongs into ditorch/lib, or with a second argument into a folder there.
function(dit_set_library target)
  dit_set_flags(${target})
  set(search "$ORIGIN")
  if(ARGN)
    set(search "$ORIGIN/..")
  endif()
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${DIT_LIBRARY_DIR}/${ARGN}
    BUILD_RPATH ${search}
    INSTALL_RPATH ${search})
  target_link_options(${target} PRIVATE -Wl,--no-undefined)
  install(TARGETS ${target} LIBRARY DESTINATION ditorch/lib/${ARGN})
endfunction()
