# Every option that --help knows is in the man page.
for command in info check bench apply; do
  plain $command --help | grep -o '^  \(-., \)\?--[a-z-]*' | sed 's/.*--/--/' | while read -r option; do
    [ "$option" = --help ] && continue
    sed 's/\\//g' "$SOURCE/docs/man/rmsnorm.1" | grep -q -e "$option\>" || echo "$command: $option is not in the man page"
  done
done
plain --help | grep -o '^  [a-z]*  ' | while read -r command; do
  grep -q "^\.SS $command\$" "$SOURCE/docs/man/rmsnorm.1" || echo "$command is not in the man page"
done
echo done
