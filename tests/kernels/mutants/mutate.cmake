# cmake -DIN=FILE -DOUT=FILE -DFROM=FILE -DTO=FILE -P mutate.cmake: a copy of IN in which the text of
# FROM, which must occur exactly once, is replaced by that of TO.
file(READ ${IN} text)
file(READ ${FROM} from)
file(READ ${TO} to)
string(FIND "${text}" "${from}" first)
string(FIND "${text}" "${from}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR "mutant of ${IN}: '${from}' does not occur exactly once")
endif()
string(REPLACE "${from}" "${to}" text "${text}")
file(WRITE ${OUT} "${text}")
