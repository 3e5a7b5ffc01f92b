# What a module uses of Zephyr's build system, as its documentation describes it; nothing of Zephyr itself.
cmake_minimum_required(VERSION 3.20)
project(stand_in C CXX)
set(CONFIG_NET y)

function(zephyr_library_named name)
  add_library(${name} STATIC)
  target_include_directories(${name} SYSTEM PRIVATE ${EXECUTORCH_INCLUDE_DIRS})
  set(ZEPHYR_CURRENT_LIBRARY ${name} PARENT_SCOPE)
endfunction()

function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()

function(zephyr_include_directories)
  target_include_directories(${ZEPHYR_CURRENT_LIBRARY} PUBLIC ${ARGN})
endfunction()

function(zephyr_library_compile_definitions)
  target_compile_definitions(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()

function(zephyr_library_link_libraries)
  target_link_libraries(${ZEPHYR_CURRENT_LIBRARY} PUBLIC ${ARGN})
endfunction()

# Zephyr includes the file in the output section of constants.
function(zephyr_linker_sources location file)
  if(NOT location STREQUAL "RODATA" OR ARGN)
    message(FATAL_ERROR "zephyr_linker_sources: ${ARGV}")
  endif()
  file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${file} snippet)
  file(WRITE ${CMAKE_BINARY_DIR}/linker.ld "SECTIONS { .text : { *(.text*) } .rodata : { ${snippet} *(.rodata*) } }\n")
endfunction()

add_library(libexecutorch INTERFACE)
add_subdirectory(${MODULE}/zephyr net)
