# Weights of samples, of heads and of rows, and rows along another axis than the last.

note "x (2, 3, 2), h = -1 1 throughout; adaLN: scale and shift of each sample, y = h*(1 + scale) + shift"
tool make x.npy f32 2,3,2 1 3
tool make scale.npy f32 2,2 1 1 3 3
tool make shift.npy f32 2,2 10 10 20 20
adaln() { rmsnorm apply x.npy -o y.npy --kind layer --eps 0 --weight scale.npy --weight-offset 1 --bias shift.npy "$@"; }
adaln
tool show y.npy

note "the same as (2, 1, 2), which leaves no doubt"
tool make scale.npy f32 2,1,2 1 1 3 3
tool make shift.npy f32 2,1,2 10 10 20 20
adaln
tool show y.npy

note "of each row, and of each of three heads"
tool make scale.npy f32 2,3,2 1 1 3 3 0 0
tool make shift.npy f32 2,3,2 10 10 20 20 30 30 40 40 50 50 60 60
adaln
tool show y.npy
tool make scale.npy f32 3,2 1 1 3 3 0 0
tool make shift.npy f32 3,2 10 10 20 20 30 30
adaln
tool show y.npy

note "where there are as many samples as heads, (2, 2) are the heads and (2, 1, 2) the samples"
tool make x.npy f32 2,2,2 1 3
tool make scale.npy f32 2,2 1 1 3 3
tool make shift.npy f32 2,2 10 10 20 20
adaln
tool show y.npy
tool make scale.npy f32 2,1,2 1 1 3 3
tool make shift.npy f32 2,1,2 10 10 20 20
adaln
tool show y.npy

note "four axes: samples (2, 2), and frames (2, 2, 2) of each sample"
tool make x.npy f32 2,2,2,2 1 3
tool make scale.npy f32 2,1,1,2 1 1 3 3
tool make shift.npy f32 2,1,1,2 10 10 20 20
adaln
tool show y.npy
tool make scale.npy f32 2,2,1,2 0
tool make shift.npy f32 2,2,1,2 10 10 20 20 30 30 40 40
adaln
tool show y.npy

note "statistics, scales and q of samples with weights of their own stay in the order of the rows: the root mean"
note "squares are 1 2 4 8 16 32, y = h * weight = 1 in the first sample and 2 in the second"
tool make x.npy f32 2,3,2 1 1 2 2 4 4 8 8 16 16 32 32
tool make w.npy f32 2,2 1 1 2 2
rmsnorm apply x.npy -o y.npy --eps 0 --weight w.npy --rstd r.npy
tool show y.npy r.npy
rmsnorm apply x.npy --quantised q.npy --scale s.npy --quantised-type e4m3 --eps 0 --weight w.npy --groups 2 --rstd r.npy
tool show s.npy r.npy

note "gradients of scale and shift: sums over the tokens of a sample, in the shape of the scale; h = -1 1"
tool make x.npy f32 2,3,2 1 3
tool make dy.npy f32 2,3,2 1 2 3 4 5 6 7 8 9 10 11 12
tool make scale.npy f32 2,2 0
rmsnorm apply x.npy --backward dy.npy -o dx.npy --kind layer --eps 0 --weight scale.npy --weight-offset 1 --dweight ds.npy --dbias dt.npy
tool show dx.npy ds.npy dt.npy
tool make scale.npy f32 2,1,2 0
rmsnorm apply x.npy --backward dy.npy --kind layer --eps 0 --weight scale.npy --weight-offset 1 --dweight ds.npy
tool show ds.npy

note "channels first: images (1, 2, 2, 2) whose two channels are 1 3 in every pixel but the last, where they are 3 1"
tool make x.npy f32 1,2,2,2 1 1 1 3 3 3 3 1
tool make w.npy f32 2 1 2
tool make b.npy f32 2 10 20
rmsnorm apply x.npy -o y.npy --kind layer --axis 1 --eps 0 --weight w.npy --bias b.npy --mean m.npy --rstd r.npy
tool show y.npy m.npy r.npy
rmsnorm apply x.npy -o z.npy --kind layer --axis -3 --eps 0 --weight w.npy --bias b.npy
cmp y.npy z.npy && echo "axis -3 is axis 1"

note "its gradients: dbias is the sum over the pixels, dweight that of dy*h"
tool make dy.npy f32 1,2,2,2 1 2 3 4 5 6 7 8
rmsnorm apply x.npy --backward dy.npy --kind layer --axis 1 --eps 0 --weight w.npy --dweight dw.npy --dbias db.npy
tool show dw.npy db.npy

note "rms with r = 1/2: dx = dy/2 - x*(sum(dy*x)/8)/2 = -1 1, and 100 is added"
tool make x.npy f32 1,2,2,2 2
tool make d.npy f32 1,2,2,2 100
rmsnorm apply x.npy --backward dy.npy -o dx.npy --axis 1 --eps 0 --dresidual d.npy
tool show dx.npy

note "the first axis of a matrix; one whose other axes are 1; no rows; the last axis by its number"
tool make x.npy f32 2,3 1 2 3 1 2 3
rmsnorm apply x.npy -o y.npy --axis 0 --eps 0 --rstd r.npy
tool show y.npy r.npy
tool make x.npy f32 2,2,1,1 3
rmsnorm apply x.npy -o y.npy --axis 1 --eps 0
tool show y.npy
tool make x.npy f32 2,2,0 3
rmsnorm apply x.npy -o y.npy --axis 1 --eps 0 --rstd r.npy
tool show y.npy r.npy
tool make x.npy f32 2,2 3
rmsnorm apply x.npy -o y.npy --axis 1 --eps 0
tool show y.npy

note "an axis of any length: ones stay what they are"
tool make x.npy f32 1,16384,2 1
rmsnorm apply x.npy -o y.npy --axis 1 --eps 0
cmp <(tail -c 131072 x.npy) <(tail -c 131072 y.npy) && echo "y is x"

note "mistakes"
tool make x.npy f32 1,4,2 1
rmsnorm apply x.npy -o bad.npy --axis 3
rmsnorm apply x.npy -o bad.npy --axis -4
rmsnorm apply x.npy --axis 1 --quantised bad.npy --scale s.npy
tool make w.npy f32 2 1
rmsnorm apply x.npy -o bad.npy --axis 1 --weight w.npy
tool make w.npy f32 1,4,1 1
rmsnorm apply x.npy -o bad.npy --axis 1 --weight w.npy
tool make w.npy f32 2,2 1
rmsnorm apply x.npy -o bad.npy --weight w.npy
tool make w.npy f32 1,1,4,2 1
rmsnorm apply x.npy -o bad.npy --weight w.npy
[ -e bad.npy ] || echo "nothing was written"
