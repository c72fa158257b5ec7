#!/usr/bin/env bash
# DUMP=COMMAND backup.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/lib/dump.sh"
. "$here/lib/rotate.sh"

KEEP=${KEEP:-3}

main() {
  local folder=$1
  mkdir -p "$folder"
  local made=$(make_backup "$folder")
  rotate "$folder" "$KEEP"
  echo "backup done: $(basename "$made")"
}

main "$@"
