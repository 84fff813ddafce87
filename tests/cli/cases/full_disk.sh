# A file system that fills up while the second output is written.
mkdir disk
if ! mount -t tmpfs -o size=96k none disk 2>/dev/null; then
  echo "a full disk needs a mount of its own, which this user may not make"
  echo "exit 77"
  exit
fi
tool make x.npy f32 256,64 1
cp x.npy disk/old.npy
rmsnorm apply x.npy -o disk/old.npy
rmsnorm apply x.npy -o y.npy --residual x.npy --residual-out disk/s.npy
ls . disk
cmp x.npy disk/old.npy && echo "the old file is as it was"
umount disk
