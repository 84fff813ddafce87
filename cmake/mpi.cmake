# MPI, where there is one: RMSNORM_MPI=on insists on it. The library needs none; rmsnorm_mpi.h is a header for the caller's MPI.
# With it, the lab trains on several machines, and the tests and examples of rmsnorm_mpi.h are built. Sets RMSNORM_WITH_MPI.
set(RMSNORM_WITH_MPI FALSE)
if(RMSNORM_MPI STREQUAL "off" OR (CMAKE_CROSSCOMPILING AND NOT RMSNORM_MPI STREQUAL "on"))
  return()
endif()
find_package(MPI COMPONENTS C QUIET)
if(NOT MPI_C_FOUND)
  if(RMSNORM_MPI STREQUAL "on")
    message(FATAL_ERROR "RMSNORM_MPI=on, but there is no MPI (Debian: libopenmpi-dev openmpi-bin)")
  endif()
  message(STATUS "no MPI: the lab runs on one machine (Debian: libopenmpi-dev openmpi-bin)")
  return()
endif()
set(RMSNORM_WITH_MPI TRUE)

# How a program is started on N processes, more than there are cores, by root in a container too.
function(rmsnorm_mpirun out processes)
  set(${out} ${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
      OMPI_MCA_rmaps_base_oversubscribe=1 ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${processes} PARENT_SCOPE)
endfunction()
