# SPDX-License-Identifier: Apache-2.0
#
# Debian packages, by `cpack` in a build folder that was configured with -DCMAKE_INSTALL_PREFIX=/usr:
#   strata         the command, its manual page and completions
#   libstrata0     the shared libraries; the number is the soname's
#   libstrata-dev  headers, the static libraries, files for CMake and pkg-config
#   strata-parquet the module that reads Parquet, where Arrow's libraries come from Debian packages too
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME strata)
set(CPACK_PACKAGE_VENDOR Strata)
set(CPACK_PACKAGE_CONTACT "Strata's maintainers <strata@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains neural networks on any accelerator")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_COMPONENTS_ALL strata libstrata0 libstrata-dev)
if(STRATA_WITH_PARQUET)
  list(APPEND CPACK_COMPONENTS_ALL strata-parquet)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)

# dpkg-shlibdeps finds what programs link; drivers' loaders are opened at run time and so only recommended.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
foreach(component STRATA LIBSTRATA0 LIBSTRATA-DEV STRATA-PARQUET)
  string(TOLOWER ${component} name)
  set(CPACK_DEBIAN_${component}_PACKAGE_NAME ${name})
endforeach()
# dpkg-shlibdeps does not see that packed relocations need glibc 2.36: no symbol stands for them.
if(STRATA_PACKED_RELOCATIONS)
  set(CPACK_DEBIAN_LIBSTRATA0_PACKAGE_DEPENDS "libc6 (>= 2.36)")
endif()
set(CPACK_DEBIAN_STRATA_PACKAGE_DEPENDS "libstrata0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_STRATA-PARQUET_PACKAGE_DEPENDS "libstrata0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LIBSTRATA0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBSTRATA0_PACKAGE_RECOMMENDS "ocl-icd-libopencl1 | libopencl1, libvulkan1")
set(CPACK_DEBIAN_LIBSTRATA0_PACKAGE_SUGGESTS "pocl-opencl-icd, mesa-vulkan-drivers")
set(CPACK_DEBIAN_LIBSTRATA-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBSTRATA-DEV_PACKAGE_DEPENDS "libstrata0 (= ${PROJECT_VERSION})")
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${component} RENAME copyright COMPONENT ${component})
endforeach()
set(CPACK_COMPONENT_STRATA_DESCRIPTION "the command strata")
set(CPACK_COMPONENT_LIBSTRATA0_DESCRIPTION "the shared libraries")
set(CPACK_COMPONENT_STRATA-PARQUET_DESCRIPTION "reads Parquet files")
set(CPACK_COMPONENT_LIBSTRATA-DEV_DESCRIPTION "headers and the static libraries")
include(CPack)
