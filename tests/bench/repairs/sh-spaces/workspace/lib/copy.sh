# copy_one FILE: from SOURCE to TARGET, and into the list.
copy_one() {
  local name
  name=$(relative $1 $SOURCE)
  mkdir -p $TARGET/$(dirname $name)
  cp $1 $TARGET/$name
  echo $name >> $TARGET/list
}
