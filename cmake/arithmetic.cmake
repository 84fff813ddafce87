# The bits of the results depend on these flags. They come after the flags of a parent project or a packager, and so override
# -ffast-math, -Ofast and their parts, -ffp-contract=fast, -mfpmath=387 and -flto. src/core/arithmetic.h refuses to compile
# without them.
set(arithmetic
  -fno-fast-math -fno-unsafe-math-optimizations -fno-associative-math -fno-reciprocal-math -fno-finite-math-only
  -fsigned-zeros -ftrapping-math -fno-rounding-math
  -ffp-contract=off  # no contraction that the source does not write
  -fno-math-errno    # no errno around sqrt
  -fno-lto)          # code for one instruction set never moves into the code for another
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND arithmetic -fno-single-precision-constant)
endif()
if(RMSNORM_ARCH STREQUAL "x86_64")
  list(APPEND arithmetic -mfpmath=sse)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${arithmetic}>")
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)

# Linked with -ffast-math or -Ofast, a program or a shared library starts with code that makes the processor flush
# subnormal numbers to zero, for the whole process.
add_link_options("$<$<LINK_LANGUAGE:C>:-O2;-fno-fast-math;-fno-unsafe-math-optimizations>")
