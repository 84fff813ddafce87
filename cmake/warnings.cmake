# Warnings for every target of the project. As a part of another project it leaves warnings to that project.
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:C>:-Wall> $<$<COMPILE_LANGUAGE:C>:-Wextra> $<$<COMPILE_LANGUAGE:C>:-Wpedantic>
    $<$<COMPILE_LANGUAGE:C>:-Wshadow> $<$<COMPILE_LANGUAGE:C>:-Wconversion> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wundef> $<$<COMPILE_LANGUAGE:C>:-Wvla>
    $<$<COMPILE_LANGUAGE:C>:-Wdouble-promotion>
    # The interface is made for designated initializers that leave the other fields zero.
    $<$<COMPILE_LANGUAGE:C>:-Wno-missing-field-initializers>)
endif()
if(RMSNORM_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
