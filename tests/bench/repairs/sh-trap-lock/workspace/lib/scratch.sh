# new_scratch: a folder for this run in SCRATCH.
new_scratch() {
  SCRATCH=$(mktemp -d)
  trap 'rm -rf "$SCRATCH"' EXIT
}
