# numbers FOLDER: of the backups there, the oldest first.
numbers() {
  local file
  for file in "$1"/*.gz; do
    [ -e "$file" ] || continue
    basename "$file" .gz
  done | sort -n
}

# next_number FOLDER
next_number() {
  local last
  last=$(numbers "$1" | tail -n 1)
  echo $((${last:-0} + 1))
}

# rotate FOLDER KEEP: remove all but the newest KEEP.
rotate() {
  local all number
  all=$(numbers "$1")
  local count
  count=$(echo "$all" | wc -l)
  for number in $all; do
    [ "$count" -gt "$2" ] || break
    rm "$1/$number.gz"
    count=$((count - 1))
  done
}
