# arlab_embed_headers(TARGET ROOTS header... [SHIMS folder]): the headers that these include in quotes, and all files of the
# folder under their names in it, become strings of the program (sources.h), with the SHA-256 over all. Roots are named from the
# project's folder. Which headers they are is found at build time, again whenever one of them changes.
#
# The same file is the script that does it: cmake -DPROJECT=... -DROOTS=... -DSHIMS=... -DOUT=... -P embed.cmake

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(ARLAB_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  function(arlab_embed_headers target)
    cmake_parse_arguments(ARG "" "SHIMS" "ROOTS" ${ARGN})
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${target}_headers.cc)
    add_custom_command(OUTPUT ${out}
      COMMAND ${CMAKE_COMMAND} -DPROJECT=${PROJECT_SOURCE_DIR} "-DROOTS=${ARG_ROOTS}" -DSHIMS=${ARG_SHIMS} -DOUT=${out}
        -P ${ARLAB_EMBED_SCRIPT}
      DEPENDS ${ARLAB_EMBED_SCRIPT} DEPFILE ${out}.d VERBATIM COMMENT "embedding device headers")
    target_sources(${target} PRIVATE ${out})
    # A source of many strings, which has nothing in common with others.
    set_source_files_properties(${out} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  endfunction()
  return()
endif()

cmake_minimum_required(VERSION 3.25)

# ---- which headers: names, and their files in the same order
set(names ${ROOTS})
list(TRANSFORM names PREPEND ${PROJECT}/ OUTPUT_VARIABLE files)
if(SHIMS)
  file(GLOB_RECURSE shims LIST_DIRECTORIES FALSE RELATIVE ${SHIMS} ${SHIMS}/*)
  foreach(shim ${shims})
    list(APPEND names ${shim})
    list(APPEND files ${SHIMS}/${shim})
  endforeach()
endif()
set(at 0)
list(LENGTH files count)
while(at LESS count)
  list(GET files ${at} file)
  file(STRINGS ${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  foreach(line ${lines})
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" included "${line}")
    if(included IN_LIST names)
      continue()
    endif()
    if(NOT EXISTS ${PROJECT}/${included})
      message(FATAL_ERROR "${file}: ${included} is not in the project: a device header includes device headers only")
    endif()
    list(APPEND names ${included})
    list(APPEND files ${PROJECT}/${included})
  endforeach()
  math(EXPR at "${at} + 1")
  list(LENGTH files count)
endwhile()

# ---- the source
file(WRITE ${OUT}.new "#include \"kernels/compile/sources.h\"\n\nnamespace arlab::kernels {\n\nstd::span<const Header> embedded_headers() {
  static const auto& headers = *new std::vector<Header>{\n")
set(said "")
foreach(name file IN ZIP_LISTS names files)
  file(READ ${file} text)
  file(SHA256 ${file} hash)
  string(APPEND said "${name} ${hash}\n")
  file(APPEND ${OUT}.new "{\"${name}\", R\"arlab_header(${text})arlab_header\"},\n")
endforeach()
string(SHA256 hash "${said}")
file(APPEND ${OUT}.new "  };\n  return headers;\n}\n\nconst std::string& embedded_headers_hash() {
  static const auto& hash = *new std::string(\"${hash}\");\n  return hash;\n}\n\n}  // namespace arlab::kernels\n")
file(RENAME ${OUT}.new ${OUT})
list(JOIN files " " dependencies)
file(WRITE ${OUT}.d "${OUT}: ${dependencies}\n")
