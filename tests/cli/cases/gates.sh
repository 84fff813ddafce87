# Gates whose values are exact: sigmoid(0) = 1/2, and far from 0 both activations are 0 or z itself.

note "rms: x = 2, h = 1, z = 0: y = h*sigmoid(0) = 0.5; silu(0) = 0; silu(64) = 64"
tool make x.npy f32 2,4 2
tool make z.npy f32 2,4 0
rmsnorm apply x.npy -o y.npy --eps 0 --gate z.npy --activation sigmoid
tool show y.npy
rmsnorm apply x.npy -o y.npy --eps 0 --gate z.npy
tool show y.npy
tool make z.npy f32 2,4 64
rmsnorm apply x.npy -o y.npy --eps 0 --gate z.npy
tool show y.npy

note "a gate before the norm: x*silu(z) = 128 throughout, and x/2 with sigmoid(0): the scale does not matter"
rmsnorm apply x.npy -o y.npy --eps 0 --gate z.npy --gate-place before
tool show y.npy
for type in f32 f64 f16 bf16; do
  tool make x.npy $type 1,4 1 -1
  tool make z.npy $type 1,4 0
  rmsnorm apply x.npy -o y.npy --eps 0 --gate z.npy --gate-place before --activation sigmoid
  tool show y.npy
done

note "gradients: x = 2 2 2 2, h = 1, dy = 1 2 3 4, sigmoid(0) = 1/2: dm = dy/2, dx = half of that without a gate,"
note "dweight = dm*h, dgate = dy*h*sigmoid'(0) = dy/4"
tool make x.npy f32 2,4 2
tool make z.npy f32 2,4 0
tool make dy.npy f32 2,4 1 2 3 4
rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --gate z.npy --activation sigmoid --dgate dz.npy --dweight dw.npy
tool show dx.npy dz.npy dw.npy

note "with a bias of 1 before the gate, m = 2: dgate = dy*2/4"
tool make b.npy f32 4 1
rmsnorm apply x.npy --backward dy.npy --eps 0 --gate z.npy --activation sigmoid --bias b.npy --dgate dz.npy
tool show dz.npy

note "before the norm: v = x/2 = 1, r = 1, d = dy - 2.5: dx = d/2, dgate = d*x/4 = d/2"
rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --gate z.npy --activation sigmoid --gate-place before --dgate dz.npy
tool show dx.npy dz.npy

note "mistakes"
rmsnorm apply x.npy -o y.npy --gate-place before
rmsnorm apply x.npy -o y.npy --activation silu
rmsnorm apply x.npy --backward dy.npy -o y.npy --dgate dz.npy
rmsnorm apply x.npy -o y.npy --gate z.npy --dgate dz.npy
rmsnorm apply x.npy -o y.npy --gate z.npy --gate-place within
rmsnorm apply x.npy -o y.npy --gate z.npy --activation swish
tool make z.npy f32 2,3 0
rmsnorm apply x.npy -o y.npy --gate z.npy
tool make z.npy f16 2,4 0
rmsnorm apply x.npy -o y.npy --gate z.npy
