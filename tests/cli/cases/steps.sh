# Models that round at other steps, and an eps that bounds the root mean square.

note "bf16, r = 0.320256323 is stored, but x is multiplied by the 0.3203125 that bf16 has: y = 0.9609375 at 3"
tool make x.npy bf16 1,4 1 2 3 5
rmsnorm apply x.npy -o y.npy --eps 0 --steps rstd --rstd r.npy
tool show y.npy r.npy

note "every step in bf16: a root of 3.125, by which x is divided; with f32 data there is nothing to round"
rmsnorm apply x.npy -o y.npy --eps 0 --steps all --rstd r.npy
tool show y.npy r.npy
tool make x32.npy f32 1,4 1 2 3 5
rmsnorm apply x32.npy -o y.npy --eps 0 --steps all
tool show y.npy
rmsnorm apply x32.npy -o y.npy --eps 0
tool show y.npy

note "the gradient of each"
tool make dy.npy bf16 1,4 1 1 -2 0.5
for steps in wide terms rstd all; do
  rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --steps $steps
  tool show dx.npy
done

note "a root mean square of 3: an eps of 2 bounds nothing, one of 4 makes y = x/4"
tool make x.npy f32 1,2 3 -3
tool make dy.npy f32 1,2 1 2
for eps in 2 4; do
  rmsnorm apply x.npy -o y.npy --eps $eps --eps-clamp
  tool show y.npy
  rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps $eps --eps-clamp
  tool show dx.npy
done

note "what the steps exclude"
rmsnorm apply x.npy -o y.npy --steps every
rmsnorm apply x.npy -o y.npy --steps all --gate x.npy
rmsnorm apply x.npy -o y.npy --steps terms --kind layer
rmsnorm apply x.npy -o y.npy --steps rstd --eps-outside
rmsnorm apply x.npy -o y.npy --steps all --k 1
rmsnorm apply x.npy -o y.npy --eps-clamp --eps-outside
rmsnorm check rms:fwd:bf16:1x4:steps=every
