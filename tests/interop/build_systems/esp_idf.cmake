# What a component uses of ESP-IDF's build system, as its documentation describes it; nothing of ESP-IDF itself.
cmake_minimum_required(VERSION 3.19)
project(stand_in C CXX)

function(idf_component_register)
  cmake_parse_arguments(ARG "" "" "SRCS;INCLUDE_DIRS;PRIV_REQUIRES" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SRCS)
    message(FATAL_ERROR "idf_component_register: ${ARGN}")
  endif()
  list(FILTER ARG_SRCS INCLUDE REGEX "${SOURCES}")
  add_library(idf_net STATIC ${ARG_SRCS})
  target_include_directories(idf_net PUBLIC ${ARG_INCLUDE_DIRS})
  target_include_directories(idf_net SYSTEM PRIVATE ${EXECUTORCH_INCLUDE_DIRS})
  set(COMPONENT_LIB idf_net PARENT_SCOPE)
endfunction()

add_subdirectory(${COMPONENT} net)
