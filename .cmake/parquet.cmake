# SPDX-License-Identifier: Apache-2.0
#
# libstrata_parquet.so, the module that reads Parquet files, and the one part of Strata in C++. It lies beside libstrata.so,
# which opens it when the first Parquet file is read: neither Arrow nor C++ is loaded before that.
set(STRATA_PARQUET_STANDARD "")
if(STRATA_PARQUET AND STRATA_PARQUET_INCLUDE AND STRATA_PARQUET_LIBRARY AND STRATA_ARROW_LIBRARY)
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    include(CheckCXXSourceCompiles)
    # Arrow's headers are C++20 from some version on.
    foreach(standard 17 20)
      set(CMAKE_REQUIRED_FLAGS -std=c++${standard})
      set(CMAKE_REQUIRED_INCLUDES ${STRATA_PARQUET_INCLUDE})
      set(CMAKE_REQUIRED_LIBRARIES ${STRATA_PARQUET_LIBRARY} ${STRATA_ARROW_LIBRARY})
      set(CMAKE_REQUIRED_QUIET ON)
      check_cxx_source_compiles("
        #include <arrow/api.h>
        #include <parquet/arrow/reader.h>
        int main() { parquet::arrow::FileReaderBuilder builder; return builder.raw_reader() != nullptr; }"
        STRATA_PARQUET_COMPILES_AS_${standard})
      unset(CMAKE_REQUIRED_FLAGS)
      unset(CMAKE_REQUIRED_INCLUDES)
      unset(CMAKE_REQUIRED_LIBRARIES)
      unset(CMAKE_REQUIRED_QUIET)
      if(STRATA_PARQUET_COMPILES_AS_${standard})
        set(STRATA_PARQUET_STANDARD ${standard})
        break()
      endif()
    endforeach()
  endif()
endif()

function(strata_add_parquet_module)
  add_library(strata_parquet MODULE core/data/format/parquet_module.cc)
  target_include_directories(strata_parquet SYSTEM PRIVATE ${STRATA_PARQUET_INCLUDE})
  target_link_libraries(strata_parquet PRIVATE strata_private ${STRATA_PARQUET_LIBRARY} ${STRATA_ARROW_LIBRARY})
  # Arrow's classes have no type information under UBSan's own rules.
  if(STRATA_SANITIZE MATCHES "undefined")
    target_compile_options(strata_parquet PRIVATE -fno-sanitize=vptr)
  endif()
  set_target_properties(strata_parquet PROPERTIES CXX_STANDARD ${STRATA_PARQUET_STANDARD} CXX_STANDARD_REQUIRED ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  # Libraries that the system's loader does not find, such as those of a Python package, are found where they are now.
  cmake_path(GET STRATA_PARQUET_LIBRARY PARENT_PATH folder)
  if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    set_target_properties(strata_parquet PROPERTIES INSTALL_RPATH ${folder})
  endif()
  install(TARGETS strata_parquet LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT strata-parquet)
endfunction()
