# Quantised outputs whose values are exact: x = 2 gives y = 1, and y = 1 with -1 and 0.
elements() { tail -c "$2" "$1" | od -An -v -t"$3" | tr -s ' \n' ' '; echo; }
header() { head -c 128 "$1" | tr -cd '[:print:]' | sed 's/.*{/{/; s/ *$//'; echo; }

note "int8: the largest magnitude of a row becomes 127, its scale is 1/127; a row of zeros has scale 0"
tool make x.npy f32 2,4 2 -2 2 -2 0 0 0 0
rmsnorm apply x.npy --quantised q.npy --scale s.npy -o y.npy --eps 0
header q.npy
elements q.npy 8 d1
tool show y.npy s.npy

note "8-bit floats: 1 is 0x7e of e4m3 and 0x7b of e5m2 under scales of 1/448 and 1/57344; a scale of 1 that is given: 0x38, 0x3c"
for type in e4m3 e5m2; do
  rmsnorm apply x.npy --quantised q.npy --quantised-type $type --scale s.npy --eps 0
  header q.npy
  elements q.npy 8 x1
  tool make one.npy f32 1 1
  rmsnorm apply x.npy --quantised q.npy --quantised-type $type --scale one.npy --scale-block tensor --eps 0
  elements q.npy 8 x1
done

note "blocks of two, with a least scale; q8_0: 32 elements in 34 bytes, the scale 1/127 as f16 is 0x2008"
rmsnorm apply x.npy --quantised q.npy --scale s.npy --scale-block 2 --scale-least 0.5 --eps 0
elements q.npy 8 d1
tool show s.npy
tool make wide.npy bf16 1,32 2
rmsnorm apply wide.npy --quantised q.npy --quantised-type q8_0 --eps 0
header q.npy
elements q.npy 34 x1

note "mistakes"
rmsnorm apply x.npy --quantised q.npy
rmsnorm apply x.npy --scale s.npy -o y.npy
rmsnorm apply x.npy --quantised q.npy --quantised-type i4 --scale s.npy
rmsnorm apply x.npy --quantised q.npy --scale s.npy --scale-block 3
rmsnorm apply x.npy --quantised q.npy --scale s.npy --scale-block none
rmsnorm apply x.npy --quantised q.npy --scale s.npy --scale-least -1
rmsnorm apply x.npy --quantised q.npy --scale x.npy --scale-block tensor
rmsnorm apply x.npy --quantised q.npy --quantised-type q8_0
rmsnorm apply x.npy --quantised q.npy --quantised-type q8_0 --scale s.npy
rmsnorm apply x.npy --quantised q.npy --quantised-type q8_0 --scale-block 32
rmsnorm apply x.npy --backward x.npy --quantised q.npy --scale s.npy -o dx.npy
tool make x.npy f64 1,4 1
rmsnorm apply x.npy --quantised q.npy --scale s.npy
