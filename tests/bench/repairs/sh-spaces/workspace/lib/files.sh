# each_text FOLDER COMMAND: call COMMAND with each text file below FOLDER.
each_text() {
  local file
  for file in $(find "$1" -type f -name '*.txt' | sort); do
    "$2" $file
  done
}

# relative FILE FOLDER: the name of FILE as it is seen from FOLDER.
relative() {
  echo $1 | sed "s|^$2/||"
}
