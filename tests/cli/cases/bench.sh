# What does not depend on the machine.
rmsnorm bench --list
keys() { plain "$@" | tool json || echo "no JSON"; }
note "keys of the JSON documents"
keys info --json | grep -vx cuda # builds with the CUDA library have one more
keys bench rms:fwd:f32:3x64 layer:bwd:bf16:2x3x40:res=f32:dres --rounds 3 --json
note "one problem of every kind runs and passes its own check"
for problem in rms:fwd:f64:5x33:bias:off=1 prms:bwd:f32:4x100:p=0.1 prms:fwd:f16:4x100:k=7:idx:groups=2 \
  layer:fwd:f16:9x17:inplace rms:fwd:bf16:6x64:res:out=y+sum+stats:pad=3 rms:bwd:f32:70x50:acc:recompute \
  rms:fwd:f32:64x2048:threads=2 rms:fwd:f32:8x4x32:perhead:isa=scalar; do
  plain bench $problem --rounds 1 --verbose | grep -c "^[ *] copy" | sed 's/^[1-9].*/ran/'
done
note "one table: a row per problem, and no word of targets"
plain bench rms:fwd:f32:3x64 layer:fwd:f32:3x64 --rounds 1 | sed 1d | sed 's/ *[0-9].*//; s/^\(rms\|layer\):.*/\1 row/'
plain bench rms:fwd:f32:3x64 --rounds 1 | grep -ci target
rmsnorm bench rms:fwd:f32:3x64 --targets
note "bad problems"
rmsnorm bench rms:fwd:f32
rmsnorm bench rms:fwd:f23:4x4
rmsnorm bench rms:fwd:f32:0x4
rmsnorm bench rms:fwd:f32:4x4:split
rmsnorm bench rms:fwd:f32:4x4:isa=mmx
rmsnorm bench rms:fwd:f32:99999999x99999999
rmsnorm bench rms:fwd:f32:4x4 --rounds -1
rmsnorm bench rms:fwd:f32:4x4 --threads 0x
rmsnorm bench rms:fwd:f32:4x4 --threads 0
note "a bad problem after a good one: nothing is timed"
rmsnorm bench rms:fwd:f32:4x4 rms:fwd:f32:4xx
RMSNORM_ISA=mmx rmsnorm bench rms:fwd:f32:4x4
