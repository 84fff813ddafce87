tool make x.npy f32 2,4 1

try() { rmsnorm apply x.npy -o y.npy "$@"; }
try --eps nan
try --eps -1
try --eps inf
try --eps 1e300
try --eps one
try --eps ""
try --eps
try --p 0
try --p -0.5
try --p 1.5
try --p nan
try --k 0
try --k -3
try --k 2.5
try --k 99999999999999999999
try --p 0.5 --k 2
try --kind layer --p 0.5
try --kind layer --k 2
try --kind lyer
try --kind batch
try --rounding never
try --groups 0
try --threads 0
try --weight-offset inf
try --weight-offset 1e300
try --mean m.npy
try --residual-out s.npy
try --dweight dw.npy
try --eps-outside=1
try --wieght w.npy
try --nonsense
try -x
try z.npy
rmsnorm apply
rmsnorm apply x.npy
rmsnorm apply x.npy -o ""
rmsnorm apply x.npy --backward x.npy
rmsnorm apply x.npy --backward x.npy -o y.npy --residual x.npy
rmsnorm apply x.npy --backward x.npy -o y.npy --bias x.npy
rmsnorm apply x.npy --backward x.npy -o y.npy --rstd r.npy
note "an instruction set that does not exist"
RMSNORM_ISA=mmx rmsnorm apply x.npy -o y.npy
RMSNORM_ISA=mmx rmsnorm info
RMSNORM_ISA=mmx rmsnorm check --short
note "a number of bytes that is none"
RMSNORM_STREAM_BYTES=1M rmsnorm apply x.npy -o y.npy
RMSNORM_STREAM_BYTES=1M rmsnorm info
RMSNORM_STREAM_BYTES=1M rmsnorm check --short
RMSNORM_STREAM_BYTES=1M rmsnorm bench rms:fwd:f32:4x4
note "nothing was written"
ls
note "an input whose name looks like an option"
cp x.npy ./-x.npy
rmsnorm apply -o y.npy -- -x.npy
tool show y.npy
