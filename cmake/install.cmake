# SPDX-License-Identifier: MIT
#
# What is installed: headers, both libraries, pkg-config file, CMake package, command and man page. None of the files contains
# the installation prefix, so the tree may be moved.

if(NOT RMSNORM_INSTALL)
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rmsnorm)

set_target_properties(rmsnorm_static PROPERTIES EXPORT_NAME static)
set_target_properties(rmsnorm_shared PROPERTIES EXPORT_NAME shared)
install(TARGETS rmsnorm_static rmsnorm_shared EXPORT rmsnormTargets)
install(FILES include/rmsnorm.h include/rmsnorm_openmp.h include/rmsnorm_openmp_loaded.h include/rmsnorm_openmp_team.h
              include/rmsnorm_mpi.h include/rmsnorm_rows.h TYPE INCLUDE)
install(EXPORT rmsnormTargets NAMESPACE rmsnorm:: DESTINATION ${package_dir})

if(TARGET rmsnorm_cuda_shared)
  set_target_properties(rmsnorm_cuda_static PROPERTIES EXPORT_NAME cuda_static)
  set_target_properties(rmsnorm_cuda_shared PROPERTIES EXPORT_NAME cuda_shared)
  install(TARGETS rmsnorm_cuda_static rmsnorm_cuda_shared EXPORT rmsnormCudaTargets)
  install(FILES include/rmsnorm_cuda.h include/rmsnorm_nccl.h TYPE INCLUDE)
  install(EXPORT rmsnormCudaTargets NAMESPACE rmsnorm:: DESTINATION ${package_dir})
endif()

configure_package_config_file(cmake/rmsnormConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/rmsnormConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/rmsnormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/rmsnormConfig.cmake ${PROJECT_BINARY_DIR}/cmake/rmsnormConfigVersion.cmake
        DESTINATION ${package_dir})

# pkg-config knows where its file is (pcfiledir) and finds the rest from there. LIBDIR may have several parts (multiarch).
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH PC_PREFIX ${pc_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" PC_PREFIX ${PC_PREFIX})
file(RELATIVE_PATH PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(RELATIVE_PATH PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
foreach(name rmsnorm rmsnorm_cuda)
  if(name STREQUAL "rmsnorm" OR TARGET rmsnorm_cuda_shared)
    configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/cmake/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/cmake/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endif()
endforeach()

# What `make install` builds: everything that is installed, no tests.
add_custom_target(rmsnorm_installed DEPENDS rmsnorm_static rmsnorm_shared)
if(TARGET rmsnorm_cuda_shared)
  add_dependencies(rmsnorm_installed rmsnorm_cuda_static rmsnorm_cuda_shared)
endif()

if(TARGET rmsnorm_command)
  add_dependencies(rmsnorm_installed rmsnorm_command)
  install(TARGETS rmsnorm_command)
  install(FILES docs/man/rmsnorm.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  if(BUILD_SHARED_LIBS) # the command finds the library from its own place
    file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(rmsnorm_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  endif()
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
