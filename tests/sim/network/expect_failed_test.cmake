# Runs PROGRAM, a GoogleTest program; passes if tests ran and at least one failed. (The mutant may crash
# after that.)
execute_process(COMMAND ${PROGRAM} --gtest_brief=1 RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output
  TIMEOUT 60)
if(result EQUAL 0 OR result MATCHES "timeout" OR NOT output MATCHES "Failure|FAILED")
  message(FATAL_ERROR "No timing test sees this mutant (exit code ${result}):\n${output}")
endif()
