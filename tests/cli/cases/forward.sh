# Rows whose results are exact, worked out by hand.

note "mean square of 5 2 1 1 1 0 0 0 is 32/8 = 4, and of 4 -3 2 1 -1 1 0 0 as well: y = x/2"
for type in f32 f64 f16 bf16; do
  tool make x.npy $type 2,8 5 2 1 1 1 0 0 0 4 -3 2 1 -1 1 0 0
  rmsnorm apply x.npy -o y.npy --eps 0
  tool show y.npy
done

note "weight 2 4 8, mean square of 2 2 2 is 4: y = 2 4 8"
tool make x.npy f32 3 2
tool make w.npy f32 3 2 4 8
rmsnorm apply x.npy -o y.npy --weight w.npy --eps 0
tool show y.npy
note "weight offset 1: y = 3 5 9"
rmsnorm apply x.npy -o y.npy --weight w.npy --eps 0 --weight-offset 1
tool show y.npy
note "bias -1 0 1: y = 1 4 9"
tool make b.npy f32 3 -1 0 1
rmsnorm apply x.npy -o y.npy --weight w.npy --bias b.npy --eps 0
tool show y.npy

note "eps 12: 2/sqrt(4 + 12) = 0.5; outside the root, eps 2: 2/(2 + 2) = 0.5"
rmsnorm apply x.npy -o y.npy --eps 12
tool show y.npy
rmsnorm apply x.npy -o y.npy --eps 2 --eps-outside
tool show y.npy

note "LayerNorm of 1 3 1 3: mean 2, variance 1: y = -1 1 -1 1; with weight 2 and bias 0.5: -1.5 2.5 -1.5 2.5"
tool make x.npy f32 1,4 1 3
tool make w.npy f32 4 2
tool make b.npy f32 4 0.5
rmsnorm apply x.npy -o y.npy --kind layer --eps 0 --rstd r.npy --mean m.npy
tool show y.npy r.npy m.npy
rmsnorm apply x.npy -o y.npy --kind layer --eps 0 --weight w.npy --bias b.npy
tool show y.npy

note "pRMSNorm: the first 2 of 2 2 4 6 have mean square 4: y = 1 1 2 3; p = 0.5 and p = 0.3 both make k = 2"
tool make x.npy f32 4 2 2 4 6
for partial in "--k 2" "--p 0.5" "--p 0.3"; do
  # shellcheck disable=SC2086
  rmsnorm apply x.npy -o y.npy --eps 0 $partial
  tool show y.npy
done

note "2 groups of 2 2 4 4: y = 1 1 1 1, r = 1/2 1/4"
tool make x.npy f32 2,4 2 2 4 4
rmsnorm apply x.npy -o y.npy --eps 0 --groups 2 --rstd r.npy
tool show y.npy r.npy

note "one weight per head: heads 1 and 2 of 2 tokens, rows 2 2 and 4 4"
tool make x.npy f32 2,2,2 2 2 4 4
tool make w.npy f32 2,2 1 2 3 4
rmsnorm apply x.npy -o y.npy --eps 0 --weight w.npy
tool show y.npy

note "residual: 1 + 3 = 4 everywhere, y = 1"
tool make x.npy f16 2,3 1
tool make r.npy f16 2,3 3
rmsnorm apply x.npy -o y.npy --eps 0 --residual r.npy --residual-out s.npy
tool show y.npy s.npy
note "the sum is rounded to the residual's type before the statistic: in bf16 1 + 1/512 is 1, in f32 it is not"
tool make x.npy bf16 2 1
tool make r.npy bf16 2 0.001953125
rmsnorm apply x.npy -o y.npy --eps 0 --residual r.npy --residual-out s.npy
tool show y.npy s.npy
tool make r.npy f32 2 0.001953125
rmsnorm apply x.npy -o y.npy --eps 0 --residual r.npy --residual-out s.npy
tool show y.npy s.npy

note "h = 1/3 times 5/4: rounded once 213/512 = 0.416015625; rounded before, 171/512 * 5/4 gives 214/512 = 0.41796875"
tool make x.npy bf16 2 3 1
tool make w.npy f32 2 1.25
rmsnorm apply x.npy -o y.npy --eps 0 --k 1 --weight w.npy
tool show y.npy
rmsnorm apply x.npy -o y.npy --eps 0 --k 1 --weight w.npy --rounding before
tool show y.npy

note "no rows, one column, a long leading shape, 3 threads"
tool make x.npy f32 0,4 1
rmsnorm apply x.npy -o y.npy --rstd r.npy
tool show y.npy r.npy
tool make x.npy f32 1,1,1,2,1 -7 7
rmsnorm apply x.npy -o y.npy --eps 0 --threads 3
tool show y.npy

note "the default eps: 1e-6 for rms, 1e-5 for layer, seen in 1/sqrt(0 + eps)"
tool make x.npy f64 2 0
rmsnorm apply x.npy -o y.npy --rstd r.npy
tool show r.npy
rmsnorm apply x.npy -o y.npy --rstd r.npy --kind layer
tool show r.npy
