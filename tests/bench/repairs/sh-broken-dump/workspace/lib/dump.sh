# dump_to FILE: what DUMP writes, compressed.
dump_to() {
  $DUMP | gzip > "$1"
}

# make_backup FOLDER: a new backup; prints its file.
make_backup() {
  local file
  file=$1/$(next_number "$1").gz
  dump_to "$file"
  echo "$file"
}
