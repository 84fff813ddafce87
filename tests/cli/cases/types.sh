# A y of its own type, statistics without y, weight + offset rounded to the weight's type, a weight for each row.

note "x = 1 -1 2 -2 in bf16, rounded to bf16 before the weight of 1.001 in f32: y is in f32"
tool make x.npy bf16 1,4 1 -1 2 -2
tool make w.npy f32 4 1.001
for type in f32 bf16 f16; do
  rmsnorm apply x.npy -o y.npy --eps 0 --weight w.npy --rounding before --y-type $type
  tool show y.npy
done

note "its gradient: dy in f32, dx in bf16, dweight in f32"
tool make dy.npy f32 1,4 1 2 3 4
rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --weight w.npy --rounding before --dweight dw.npy
tool show dx.npy dw.npy

note "an f32 x beside a bf16 dy is a residual sum, and dx is in bf16, unless --y-type says otherwise"
tool make x.npy f32 1,4 1 -1 2 -2
tool make dy.npy bf16 1,4 1 2 3 4
rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0
tool show dx.npy
rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --y-type bf16
tool show dx.npy

note "statistics alone: the root mean square of 2 2 2 2 is 2"
tool make x.npy f32 2,4 2
rmsnorm apply x.npy --rstd r.npy --eps 0
tool show r.npy

note "1 + 1/256 is a tie in bf16 and becomes 1; h = 1"
tool make x.npy bf16 1,4 1
tool make w.npy bf16 4 0.00390625
rmsnorm apply x.npy -o y.npy --eps 0 --weight w.npy --weight-offset 1 --y-type f32
tool show y.npy
rmsnorm apply x.npy -o y.npy --eps 0 --weight w.npy --weight-offset 1 --y-type f32 --round-gain
tool show y.npy

note "a scale and a shift of each row: h = -1 1, y = h*(1 + scale) + shift"
tool make x.npy f32 2,2 1 3
tool make scale.npy f32 2,2 1 1 3 3
tool make shift.npy f32 2,2 10 10 20 20
rmsnorm apply x.npy -o y.npy --kind layer --eps 0 --weight scale.npy --weight-offset 1 --bias shift.npy
tool show y.npy

note "bad types"
tool make x64.npy f64 1,4 1
rmsnorm apply x.npy -o y.npy --y-type f64
rmsnorm apply x64.npy -o y.npy --y-type f32
rmsnorm apply x.npy -o y.npy --round-gain
rmsnorm apply x.npy --backward x.npy -o y.npy --y-type bf16
tool make dy.npy bf16 2,2 1
rmsnorm apply x.npy --backward dy.npy --dbias db.npy --y-type bf16
