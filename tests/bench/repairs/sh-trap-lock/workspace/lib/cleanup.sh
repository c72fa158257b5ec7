# log TEXT: into the log of FOLDER.
log() {
  echo "$*" >> "$FOLDER/publish.log"
}

finish() {
  log "finished"
}
trap finish EXIT
