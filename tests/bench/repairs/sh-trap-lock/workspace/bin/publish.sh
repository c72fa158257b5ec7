#!/usr/bin/env bash
# publish.sh FOLDER COMMAND…
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
FOLDER=$1
shift
mkdir -p "$FOLDER"
FOLDER=$(cd "$FOLDER" && pwd)
. "$here/lib/cleanup.sh"
. "$here/lib/lock.sh"
. "$here/lib/scratch.sh"

take_lock "$FOLDER"
new_scratch
log "started: $*"
cd "$SCRATCH"
if ! "$@" > build.log 2>&1; then
  log "build failed: $?"
  cat build.log >&2
fi
cp build.log "$FOLDER/build.log"
