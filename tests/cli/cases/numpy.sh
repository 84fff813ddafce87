# Files that NumPy 2.4 and ml_dtypes 0.6 wrote: read, and written back byte for byte as NumPy writes them.
numpy=$SOURCE/tests/cli/numpy
for type in f4 f8 f2 bf16; do
  rmsnorm apply - -o y.npy --weight "$numpy/w_$type.npy" --eps 0 <"$numpy/x_$type.npy" |
    sed "s,$SOURCE/,,"
  cmp y.npy "$numpy/y_$type.npy" && echo "as NumPy"
done
