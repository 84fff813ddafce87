# Sets RMSNORM_ARCH to x86_64, aarch64 or other: the architecture that the compiler generates code for. CMAKE_SYSTEM_PROCESSOR
# is not enough: it names the machine, which differs with -m32, and is empty in many toolchain files.
include(CheckCSourceCompiles)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # there is nothing to link
set(RMSNORM_ARCH other)
foreach(arch x86_64 aarch64)
  check_c_source_compiles("#ifndef __${arch}__\n#error another architecture\n#endif\nint unit;" RMSNORM_FOR_${arch})
  if(RMSNORM_FOR_${arch})
    set(RMSNORM_ARCH ${arch})
  endif()
endforeach()
unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
