# What a hidden test in Bash is made of: source "$CHECK"; same NAME WANTED GOT; holds NAME COMMAND…; finish
read -r CHECK_WORD
exec </dev/null
CHECK_PASSED=0
CHECK_TOTAL=0

same() {
  CHECK_TOTAL=$((CHECK_TOTAL + 1))
  if [ "$2" = "$3" ]; then
    CHECK_PASSED=$((CHECK_PASSED + 1))
  else
    printf '%s failed: wanted [%s], got [%s]\n' "$1" "$2" "$3"
  fi
}

holds() {
  local name=$1
  shift
  if "$@"; then same "$name" yes yes; else same "$name" yes no; fi
}

finish() {
  printf '\n%s %s %s\n' "$CHECK_WORD" "$CHECK_PASSED" "$CHECK_TOTAL"
  exit 0
}
