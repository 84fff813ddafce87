# Outputs appear whole or not at all, and inputs may be outputs.
tool make x.npy f32 2,4 2
tool make w.npy f32 4 3
run() { rmsnorm apply x.npy --eps 0 "$@"; }

note "onto the input, onto the weight, through a link; the mode stays"
chmod 640 x.npy
run -o x.npy
stat -c '%a' x.npy
tool show x.npy
run --weight w.npy -o w.npy
tool show w.npy
tool make real.npy f32 1 7
ln -s real.npy link.npy
run -o link.npy
tool show real.npy
[ -L link.npy ] && echo "link.npy is still a link"

note "the mode of a new file follows the umask"
(umask 027 && run -o new.npy)
stat -c '%a' new.npy

note "several outputs: a bad one spoils all"
mkdir folder
run -o y.npy --rstd nowhere/r.npy
run -o y.npy --rstd folder
run -o y.npy --rstd y.npy
run -o y.npy --rstd ./y.npy
run -o y.npy --rstd /dev/full
run -o /dev/full
run -o - --rstd -
ls

note "a file size limit is a full disk"
tool make big.npy f32 512,64 1
(
  ulimit -f 16
  rmsnorm apply big.npy -o y.npy
)
ls

note "a signal: the pipe has no reader, so the command waits with its first output written; then it is ended"
mkfifo pipe
${WRAPPER-} "$RMSNORM" apply x.npy -o y.npy --rstd pipe &
for _ in $(seq 100); do
  ls y.npy.* >written 2>/dev/null && break
  sleep 0.1
done
sed 's/npy\..*/npy.SUFFIX/' written
kill -TERM $!
wait $!
echo "exit $?"
ls y.npy* 2>/dev/null

note "devices and pipes are written directly"
run -o /dev/null
plain apply x.npy --eps 0 -o - | plain apply - -o y.npy --eps 0 && tool show y.npy
plain apply x.npy --eps 0 -o - >/dev/full
echo "exit $?"
plain apply x.npy --eps 0 -o - | head -c 6 | od -An -c

note "open files of the shell are written where they stand"
plain apply x.npy --eps 0 -o /dev/stdout | plain apply - -o y.npy --eps 0 && tool show y.npy
plain apply x.npy --eps 0 -o >(cat >piped.npy)
for _ in $(seq 100); do
  cmp -s piped.npy y.npy && break
  sleep 0.1
done
cmp piped.npy y.npy && echo "the process substitution got it all"
echo "a line" >log
plain apply x.npy --eps 0 -o /dev/stdout >>log
head -n 1 log
tail -c +8 log | cmp - y.npy && echo "the log goes on"
note "a dangling link is followed"
ln -s elsewhere.npy dangling.npy
ln -s dangling.npy twice.npy
run -o twice.npy
[ -L dangling.npy ] && [ -L twice.npy ] && tool show elsewhere.npy
ln -s circle.npy circle.npy
run -o circle.npy
ln -s nowhere/y.npy lost.npy
run -o lost.npy
