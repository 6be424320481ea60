# Runs PROGRAM, a GoogleTest program, until a test fails; passes if one did. (The mutant may crash in
# it. Later tests might not end.)
execute_process(COMMAND ${PROGRAM} --gtest_brief=1 --gtest_fail_fast=1 RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output
  TIMEOUT 60)
if(result EQUAL 0 OR result MATCHES "timeout" OR NOT output MATCHES "Failure|FAILED")
  message(FATAL_ERROR "No timing test sees this mutant (exit code ${result}):\n${output}")
endif()
