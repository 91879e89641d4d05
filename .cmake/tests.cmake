# SPDX-License-Identifier: Apache-2.0
#
# The tests, found by folder and name. Executables go to <build>/suites, where tests/run.sh finds them by prefix:
#   test_<dir>       tests/<dir>/*.c, when one of them is a *_test.c: Criterion suites
#   threads_<name>   tests/threads/<name>_main.c: plain programs (Criterion cannot run under ThreadSanitizer); exit code 77
# skips
#   replay_<name>    tests/fuzz/<name>_fuzz.c with replay.c: runs every input of tests/fuzz/corpus/<name>
#   fuzz_<name>      the same fuzz target under libFuzzer (STRATA_FUZZ)
# and shell scripts tests/<dir>/*_test.sh, which run as they lie; exit code 77 skips.
set(suites ${PROJECT_BINARY_DIR}/suites)
set(tests ${PROJECT_SOURCE_DIR}/tests)

add_library(strata_test_options INTERFACE)
target_link_libraries(strata_test_options INTERFACE strata_program cjson)
target_compile_definitions(strata_test_options INTERFACE STRATA_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
  STRATA_TEST_COMMAND="${PROJECT_BINARY_DIR}/strata")
# Tests wait for what they test, and -O3 doubles the time that it takes to compile them.
target_compile_options(strata_test_options INTERFACE $<$<CONFIG:Release>:-O1>)

function(strata_test_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE strata_test_options)
  foreach(part OPENCL VULKAN)
    if(STRATA_WITH_${part})
      target_include_directories(${name} SYSTEM PRIVATE ${STRATA_${part}_INCLUDE})
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${suites})
endfunction()

# Plain programs and fuzz targets need no test framework.
file(GLOB mains CONFIGURE_DEPENDS ${tests}/threads/*_main.c)
foreach(main IN LISTS mains)
  string(REGEX REPLACE "^.*/([^/]*)_main\\.c$" "threads_\\1" name ${main})
  string(REGEX REPLACE "^threads_(.*)$" "${tests}/support/\\1.c" own ${name}) # what it shares with suites
  if(NOT EXISTS ${own})
    set(own "")
  endif()
  strata_test_program(${name} ${main} ${own} ${tests}/support/locale.c)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()

# What tests/bench/parameter_server.py measures links with.
strata_test_program(bench_push_pull ${tests}/bench/push_pull_main.c)

# The random graphs that tests/oracle.sh draws.
strata_test_program(oracle_graphs ${tests}/oracle/graphs_main.c ${tests}/compile/random_graph.c
  ${tests}/compile/random_graph_check.c ${tests}/support/check.c ${tests}/support/eval.c)

# The fault matrix, whose points.c and wire.c stand before functions of the library: tests/faults/README.md.
file(GLOB parts CONFIGURE_DEPENDS ${tests}/faults/*.c)
strata_test_program(threads_faults ${parts} ${tests}/support/fork_server.c)
file(STRINGS ${tests}/faults/points.c wrappers REGEX "^WRAP\\([a-z_]+\\);$")
file(STRINGS ${tests}/faults/wire.c more REGEX "^WRAP\\([a-z_]+\\);$")
foreach(line IN LISTS wrappers more)
  string(REGEX REPLACE "^WRAP\\(([a-z_]+)\\);$" "\\1" function "${line}")
  target_link_options(threads_faults PRIVATE LINKER:--wrap=${function})
endforeach()
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tests}/faults/points.c
  ${tests}/faults/wire.c)
add_test(NAME threads_faults COMMAND threads_faults)
set_tests_properties(threads_faults PROPERTIES SKIP_RETURN_CODE 77)

# The same program with the cluster library and nothing else of Strata: it links only while that library needs no more.
add_executable(threads_cluster_alone ${tests}/threads/collectives_main.c)
target_link_libraries(threads_cluster_alone PRIVATE strata_private strata_cluster)
set_target_properties(threads_cluster_alone PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${suites})
add_test(NAME threads_cluster_alone COMMAND threads_cluster_alone)

file(GLOB targets CONFIGURE_DEPENDS ${tests}/fuzz/*_fuzz.c)
foreach(target IN LISTS targets)
  string(REGEX REPLACE "^.*/([^/]*)_fuzz\\.c$" "\\1" name ${target})
  strata_test_program(replay_${name} ${target} ${tests}/fuzz/replay.c ${tests}/support/locale.c)
  add_test(NAME replay_${name} COMMAND replay_${name} ${tests}/fuzz/corpus/${name})
  if(STRATA_FUZZ)
    strata_test_program(fuzz_${name} ${target})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
endforeach()

# What tests/vendors.sh runs: the list of kernels for GPUs that are not here, and Mesa's AMD compiler.
if(STRATA_WITH_VULKAN)
  file(GLOB cases CONFIGURE_DEPENDS ${tests}/conformance/cases_*.c)
  strata_test_program(vendors_kernels ${tests}/vendors/kernels.c ${cases} ${tests}/conformance/tables.c
    ${tests}/support/check.c ${tests}/support/eval.c)
  target_link_options(vendors_kernels PRIVATE LINKER:--wrap=strata_tuner_choose)
  strata_test_program(vendors_radv ${tests}/vendors/radv.c)
  target_link_libraries(vendors_radv PRIVATE ${CMAKE_DL_LIBS})
endif()

# Plugins, in <build>/suites/plugins: built-in backends as plugins, faulty ones, and one for each version of plugin.h.
function(strata_test_plugin name)
  add_library(plugin_${name} MODULE ${ARGN})
  target_link_libraries(plugin_${name} PRIVATE strata_private)
  set_target_properties(plugin_${name} PROPERTIES OUTPUT_NAME strata_${name}_plugin LIBRARY_OUTPUT_DIRECTORY ${suites}/plugins)
  target_link_options(plugin_${name} PRIVATE LINKER:--exclude-libs,ALL)
endfunction()
strata_test_plugin(empty ${tests}/plugin/faulty/empty.c)
strata_test_plugin(newer ${tests}/plugin/faulty/newer.c)
strata_test_plugin(faulty ${tests}/plugin/faulty/faulty.c)
strata_test_plugin(v1_0 ${PROJECT_SOURCE_DIR}/samples/plugin/acme.c)
target_include_directories(plugin_v1_0 BEFORE PRIVATE ${tests}/plugin/headers/v1.0)
foreach(backend_device host opencl:0)
  string(REGEX REPLACE ":.*" "" backend ${backend_device})
  if(backend STREQUAL "host" OR STRATA_WITH_OPENCL)
    strata_test_plugin(${backend} ${tests}/plugin/adapter/adapter.c)
    target_link_libraries(plugin_${backend} PRIVATE strata_static)
    target_compile_definitions(plugin_${backend} PRIVATE ADAPTER_NAME="${backend}-plugin" ADAPTER_DEVICE="${backend_device}")
  endif()
endforeach()

# Drivers that misbehave, over those that are installed: tests/shims/README.md.
foreach(part OPENCL VULKAN)
  string(TOLOWER ${part} api)
  if(STRATA_WITH_${part})
    add_library(shim_${api} MODULE ${tests}/shims/${api}_shim.c)
    target_link_libraries(shim_${api} PRIVATE strata_private ${CMAKE_DL_LIBS})
    target_include_directories(shim_${api} SYSTEM PRIVATE ${STRATA_${part}_INCLUDE})
    set_target_properties(shim_${api} PROPERTIES PREFIX "" OUTPUT_NAME ${api}_shim LIBRARY_OUTPUT_DIRECTORY
      ${suites}/shims)
  endif()
endforeach()

if(STRATA_SANITIZE MATCHES "thread")
  return()
endif()

file(GLOB scripts CONFIGURE_DEPENDS ${tests}/*/*_test.sh)
foreach(script IN LISTS scripts)
  cmake_path(GET script STEM name)
  add_test(NAME ${name} COMMAND sh ${script})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT
    "STRATA_SOURCE_DIR=${PROJECT_SOURCE_DIR};STRATA_BUILD_DIR=${PROJECT_BINARY_DIR};CC=${CMAKE_C_COMPILER}")
endforeach()

# A PJRT plugin for the tests of backends/pjrt.
file(GLOB plugin CONFIGURE_DEPENDS ${tests}/pjrt/plugin/*.c)
add_library(strata_test_pjrt MODULE ${plugin})
target_link_libraries(strata_test_pjrt PRIVATE strata_private strata_static m)
target_compile_definitions(strata_test_pjrt PRIVATE STRATA_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
set_target_properties(strata_test_pjrt PROPERTIES PREFIX "" OUTPUT_NAME pjrt_plugin LIBRARY_OUTPUT_DIRECTORY ${suites})

find_path(STRATA_CRITERION_INCLUDE criterion/criterion.h)
find_library(STRATA_CRITERION_LIBRARY criterion)
mark_as_advanced(STRATA_CRITERION_INCLUDE STRATA_CRITERION_LIBRARY)
if(NOT STRATA_CRITERION_INCLUDE OR NOT STRATA_CRITERION_LIBRARY)
  message(STATUS "Criterion suites: left out, Criterion was not found (Debian: libcriterion-dev)")
  return()
endif()

file(GLOB support CONFIGURE_DEPENDS ${tests}/support/*.c)
add_library(strata_test_support OBJECT ${support}) # compiled once, for all suites
target_link_libraries(strata_test_support PRIVATE strata_test_options)
target_include_directories(strata_test_support SYSTEM PRIVATE ${STRATA_CRITERION_INCLUDE})
file(GLOB first_files CONFIGURE_DEPENDS ${tests}/*/*_test.c)
set(folders "")
foreach(file IN LISTS first_files)
  cmake_path(GET file PARENT_PATH folder)
  list(APPEND folders ${folder})
endforeach()
list(REMOVE_DUPLICATES folders)
foreach(folder IN LISTS folders)
  cmake_path(GET folder FILENAME name)
  file(GLOB parts CONFIGURE_DEPENDS ${folder}/*.c)
  strata_test_program(test_${name} ${parts} $<TARGET_OBJECTS:strata_test_support>)
  target_include_directories(test_${name} SYSTEM PRIVATE ${STRATA_CRITERION_INCLUDE})
  target_link_libraries(test_${name} PRIVATE ${STRATA_CRITERION_LIBRARY})
  add_test(NAME test_${name} COMMAND test_${name})
endforeach()

if(TARGET test_frontend)
  target_link_libraries(test_frontend PRIVATE strata_pjrt_static strata_static) # in this order
endif()
target_compile_definitions(test_plugin PRIVATE STRATA_TEST_PLUGINS="${suites}/plugins")
foreach(api opencl vulkan)
  if(TARGET shim_${api})
    add_dependencies(test_backend shim_${api})
  endif()
endforeach()
add_dependencies(test_plugin plugin_host plugin_faulty plugin_empty plugin_newer plugin_v1_0)
# The PJRT C API's own header, for the test of our declarations: that of a tensorflow package.
find_path(STRATA_PJRT_INCLUDE xla/pjrt/c/pjrt_c_api.h)
if(STRATA_PJRT_INCLUDE AND TARGET test_pjrt)
  target_include_directories(test_pjrt SYSTEM PRIVATE ${STRATA_PJRT_INCLUDE})
endif()
if(TARGET test_pjrt)
  add_dependencies(test_pjrt strata_test_pjrt)
endif()

# Some suites put functions of their own before the C library's or Strata's: each __wrap_<function> that the file defines is
# called in place of the function.
function(strata_test_wraps name file)
  if(NOT TARGET ${name} OR NOT EXISTS ${file})
    return()
  endif()
  file(STRINGS ${file} wrappers REGEX "^[a-z].*__wrap_[a-z_]+\\(.*{$")
  foreach(line IN LISTS wrappers)
    string(REGEX REPLACE "^.*__wrap_([a-z_]+)\\(.*$" "\\1" function "${line}")
    target_link_options(${name} PRIVATE LINKER:--wrap=${function})
  endforeach()
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endfunction()
strata_test_wraps(test_alloc ${tests}/alloc/shim.c)
strata_test_wraps(test_backend ${tests}/backend/tuner_test.c)
strata_test_wraps(test_conformance ${tests}/conformance/families.c)
