# Gradients whose values are exact, worked out by hand from
#   RMSNorm:   dx = r*(u - h*mean(u*h))        LayerNorm: dx = r*(u - mean(u) - h*mean(u*h))        dweight = sum of dy*h

note "rms: x = 2 2 2 2, r = 1/2, h = 1; dy = 1 2 3 4: mean(u*h) = 2.5, dx = (-1.5 -0.5 0.5 1.5)/2; two equal rows"
for type in f32 f64 f16 bf16; do
  tool make x.npy $type 2,4 2
  tool make dy.npy $type 2,4 1 2 3 4
  rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --dweight dw.npy --dbias db.npy
  tool show dx.npy dw.npy db.npy
done

note "layer: x = 1 3 1 3, r = 1, h = -1 1 -1 1; mean(u) = 2.5, mean(u*h) = 0.5: dx = -1 -1 1 1"
tool make x.npy f32 1,4 1 3
tool make dy.npy f32 1,4 1 2 3 4
rmsnorm apply x.npy --backward dy.npy -o dx.npy --kind layer --eps 0 --dweight dw.npy --dbias db.npy
tool show dx.npy dw.npy db.npy

note "weight 2: u doubles, dweight does not"
tool make w.npy f32 4 2
rmsnorm apply x.npy --backward dy.npy -o dx.npy --kind layer --eps 0 --weight w.npy --dweight dw.npy
tool show dx.npy dw.npy

note "pRMSNorm, k = 2: x = 2 2 4 6, r = 1/2, h = 1 1 2 3, dy = 1: sum(u*h)/k = 3.5 for the first two only"
tool make x.npy f32 1,4 2 2 4 6
tool make dy.npy f32 1,4 1
rmsnorm apply x.npy --backward dy.npy -o dx.npy --k 2 --eps 0 --dweight dw.npy
tool show dx.npy dw.npy

note "a gradient that reaches the residual sum from elsewhere is added; the sum may be f32 with 16-bit data"
tool make x.npy f32 1,4 2
tool make dy.npy bf16 1,4 1 2 3 4
tool make d.npy f32 1,4 1
rmsnorm apply x.npy --backward dy.npy -o dx.npy --eps 0 --dresidual d.npy
tool show dx.npy

note "dweight alone; no rows: zeros"
rmsnorm apply x.npy --backward dy.npy --eps 0 --dweight dw.npy
tool show dw.npy
tool make x.npy f32 0,4 1
rmsnorm apply x.npy --backward x.npy -o dx.npy --dweight dw.npy
tool show dx.npy dw.npy

note "dx onto dy"
tool make x.npy f32 1,4 2
tool make dy.npy f32 1,4 1 2 3 4
rmsnorm apply x.npy --backward dy.npy -o dy.npy --eps 0
tool show dy.npy

note "r alone: x = 4, r = 1/4, dx = -x * dr * r^3 / 4; beside dy it is added, to nothing where dy and x are alike"
tool make x.npy f32 1,4 4
tool make dr.npy f32 1 64
rmsnorm apply x.npy --drstd dr.npy -o dx.npy --eps 0
tool show dx.npy
tool make dy.npy f32 1,4 4
rmsnorm apply x.npy --backward dy.npy --drstd dr.npy -o dx.npy --eps 0
tool show dx.npy

note "of LayerNorm: x = 1 3, r = 1, h = -1 1, dx = dmean / 2 - h * dr / 2; another axis, two groups"
tool make x.npy f32 2,2,1 1 3
tool make dr.npy f32 2,1 2 4
tool make dm.npy f32 2,1 8 16
rmsnorm apply x.npy --drstd dr.npy --dmean dm.npy -o dx.npy --kind layer --eps 0 --axis 1
tool show dx.npy
tool make x.npy f32 1,4 1 3
tool make dr.npy f32 1,2 2 4
rmsnorm apply x.npy --drstd dr.npy -o dx.npy --kind layer --eps 0 --groups 2
tool show dx.npy

note "what does not fit"
rmsnorm apply x.npy --drstd x.npy -o dx.npy
rmsnorm apply x.npy --dmean dr.npy -o dx.npy
rmsnorm apply x.npy --drstd dr.npy -o dx.npy --groups 2 --steps rstd
rmsnorm apply x.npy --drstd dr.npy --groups 2
rmsnorm apply x.npy --drstd dr.npy -o dx.npy --groups 2 --y-type bf16
