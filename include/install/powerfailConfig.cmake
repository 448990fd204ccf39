# find_package(powerfail): the header with annotations as powerfail::powerfail, and powerfail_add_test().

get_filename_component(_powerfail_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET powerfail::powerfail)
  add_library(powerfail::powerfail INTERFACE IMPORTED)
  set_target_properties(powerfail::powerfail PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_powerfail_prefix}/include")
endif()

find_program(POWERFAIL_EXECUTABLE powerfail HINTS "${_powerfail_prefix}/bin")

# powerfail_add_test(NAME name COMMAND target {pool} [RECOVER target --check {pool}] [OPTIONS --races ...])
#
# A test that fails if powerfail check finds a bug. The first word of COMMAND and of RECOVER may be a target. Evidence
# for powerfail replay is kept in the build directory, in powerfail/<name>.
function(powerfail_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 TEST "" "NAME" "COMMAND;RECOVER;OPTIONS")
  if(NOT TEST_NAME OR NOT TEST_COMMAND OR TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "usage: powerfail_add_test(NAME name COMMAND program {pool} [RECOVER ...] [OPTIONS ...])")
  endif()
  if(NOT POWERFAIL_EXECUTABLE)
    message(WARNING "powerfail is not installed: the test ${TEST_NAME} is not added; set POWERFAIL_EXECUTABLE to its path")
    return()
  endif()
  foreach(_command COMMAND RECOVER)
    if(TEST_${_command})
      list(GET TEST_${_command} 0 _program)
      if(TARGET "${_program}")
        list(REMOVE_AT TEST_${_command} 0)
        list(INSERT TEST_${_command} 0 "$<TARGET_FILE:${_program}>")
      endif()
    endif()
  endforeach()
  set(_recover)
  if(TEST_RECOVER)
    list(JOIN TEST_RECOVER "' '" _words)
    set(_recover --recover "'${_words}'")
  endif()
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/powerfail")
  add_test(NAME "${TEST_NAME}" COMMAND
    "${POWERFAIL_EXECUTABLE}" check --out "${CMAKE_CURRENT_BINARY_DIR}/powerfail/${TEST_NAME}"
    ${_recover} ${TEST_OPTIONS} -- ${TEST_COMMAND})
endfunction()
