# One line by default, tables on request, misses only with --quiet. The scalar kernels give the same errors everywhere.
rmsnorm check --short --isa scalar
rmsnorm check --short --isa scalar --quiet
plain check --short --isa scalar --verbose | sed 1d # which lists the instruction sets of this CPU
rmsnorm check rms:fwd:f32:3x64:isa=scalar
rmsnorm check --quiet --verbose
