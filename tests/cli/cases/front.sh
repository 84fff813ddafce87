rmsnorm
rmsnorm --help
plain --version | sed 's/[0-9.]*$/VERSION/'
rmsnorm aply
rmsnorm frobnicate
rmsnorm info --jsn
rmsnorm info extra
rmsnorm info --help
rmsnorm bench --help
rmsnorm apply --help
note "standard output that cannot be written is an error"
plain --help >/dev/full
echo "exit $?"
note "help about a command"
plain help apply | head -n 1
rmsnorm help nosuch
rmsnorm help apply bench
