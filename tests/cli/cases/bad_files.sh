# Each bad file gets one line that names it, exit code 2, and no output.
good="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }"
tool make w.npy f32 4 1

try() { rmsnorm apply "$@" -o y.npy; }
note "missing, a folder, empty, no .npy, cut short in many places, too long"
try missing.npy
mkdir folder
try folder
: >empty.npy
try empty.npy
echo "this is text, not numbers" >text.npy
try text.npy
tool raw whole.npy 1 "$good" 32
for bytes in 3 7 9 20 75 100; do
  head -c $bytes whole.npy >cut.npy
  try cut.npy
done
tool raw long.npy 1 "$good" 33
try long.npy
echo "from a pipe"
head -c 100 whole.npy | plain apply - -o y.npy
cat long.npy | plain apply - -o y.npy

note "versions 2.0 and 3.0 are read, 4.0 is not"
for version in 2 3 4; do
  tool raw version.npy $version "$good" 32
  try version.npy && tool show y.npy && rm y.npy
done

note "a name that would clear the screen"
try "$(printf 'no\033[2J\nfile')" 2>&1 | tail -n 2

note "order, byte order, types"
header() {
  tool raw x.npy 1 "$1" "${2-32}"
  try x.npy
}
header "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4), }"
header "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': '<V4', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 4), }"

note "shapes"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (), }" 4
header "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }" 0
header "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 4), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (8), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (2 4), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4"

note "headers"
header "{'descr': '<f4', 'fortran_order': False, }"
header "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), 'more': 1}"
header "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 4), }"
header "{'descr': 4, 'fortran_order': False, 'shape': (2, 4), }"
header "{'de$(printf '\033')[2Jscr': '<f4', 'fortran_order': False, 'shape': (2, 4), }"
header "{'descr': '<f
4', 'fortran_order': False, 'shape': (2, 4), }"
header "$good $good"
header "[]"
header ""

note "keys in another order, double quotes, no last comma: read"
header "{\"shape\":(2,4),'fortran_order':False,'descr':'<f4'}" && tool show y.npy && rm y.npy

note "files that do not fit together"
tool make x.npy f32 2,4 1
tool make half.npy f16 2,4 1
for shape in 5 4,1 3,4 ""; do
  tool make bad.npy f32 "$shape" 1
  try x.npy --weight bad.npy
done
tool make bad.npy f64 4 1
try x.npy --weight bad.npy
try half.npy --weight bad.npy
tool make bad.npy f16 4 1
try half.npy --weight w.npy --bias bad.npy
try x.npy --residual half.npy
try half.npy --residual x.npy && rm y.npy
tool make bad.npy f32 2,5 1
try x.npy --residual bad.npy
try x.npy --backward bad.npy
tool make double.npy f64 2,4 1
try double.npy --backward x.npy
try x.npy --k 5
try x.npy --groups 2 --k 3
try x.npy --groups 3
try - --weight -

note "nothing was written"
ls
