# take_lock FOLDER: LOCK is ours until the end, or this run ends.
take_lock() {
  LOCK=$1/lock
  trap 'rm -rf "$LOCK"' EXIT
  if ! mkdir "$LOCK" 2> /dev/null; then
    echo "already running" >&2
    exit 75
  fi
}
