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
note "a table over numbers of threads: two lines of words, a row per problem, a summary"
plain bench rms:fwd:f32:3x64 layer:bwd:bf16:9x64 --threads all --rounds 1 | sed 1d |
  sed 's/^\(problem, threads\).*/\1/; s/^\(rms\|layer\):.*/\1 row/; s/^[0-9]* of 2 .*/summary/'
keys bench rms:fwd:f32:3x64 --threads all --rounds 1 --json
note "the walks over many problems: as JSON, and as text without figures"
keys bench --order --short --rounds 1 --json
plain bench --order --short --rounds 1 | sed 1d |
  sed '/^rms:/d; s/^[0-9]* violations* in [0-9]* comparisons of [0-9]* problems.*/summary/'
keys bench --sweep --short --rounds 1 --json
plain bench --sweep --short --rounds 1 | sed 1d |
  sed '/^rms:/d; s/[0-9]* bytes/N bytes/; s/^[0-9]* of [0-9]* sizes/N of N sizes/'
rmsnorm bench --order --sweep
rmsnorm bench --order rms:fwd:f32:3x64
rmsnorm bench --sweep --threads 2
rmsnorm bench --order --targets
note "every forward problem of the list has a form with its statistics saved"
plain bench --list | sed 's/ .*//; s/:threads=.*//; s/[0-9]*x\([0-9]*\)/2x\1/' | grep :fwd: | grep -v :out= | sort -u | while read -r problem; do
  case $problem in *:res:q=*) out=sum+stats+q ;; *:q=*) out=stats+q ;; *) out=y+stats ;; esac
  plain bench $problem:out=$out --rounds 1 | grep -cF ":out=$out"
done | sort | uniq -c | sed 's/^ *[0-9]* //'
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
rmsnorm bench rms:fwd:f32:4x4 --threads al
rmsnorm bench rms:fwd:f32:4xx --threads all
note "a bad problem after a good one: nothing is timed"
rmsnorm bench rms:fwd:f32:4x4 rms:fwd:f32:4xx
RMSNORM_ISA=mmx rmsnorm bench rms:fwd:f32:4x4
