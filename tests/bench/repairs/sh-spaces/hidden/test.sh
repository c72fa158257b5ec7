source "$CHECK"
work=$(mktemp -d)

collect() { "$BASH_PROGRAM" "$WORKSPACE/bin/collect.sh" "$@" 2>&1; }

mkdir -p "$work/in/My Notes/deep  er" "$work/in/x"
echo 1 > "$work/in/My Notes/a.txt"
echo 2 > "$work/in/My Notes/deep  er/b c.txt"
echo 3 > "$work/in/x/*.txt"
echo 4 > "$work/in/x/q\"u'o\$te.txt"
echo 5 > "$work/in/x/-n.txt"
echo 6 > "$work/in/x/back\\slash.txt"
same "all are copied" "6 files" "$(collect "$work/in" "$work/out")"
same "the list" "My Notes/a.txt
My Notes/deep  er/b c.txt
x/*.txt
x/-n.txt
x/back\\slash.txt
x/q\"u'o\$te.txt" "$(cat "$work/out/list")"
same "blanks" 2 "$(cat "$work/out/My Notes/deep  er/b c.txt" 2>/dev/null)"
same "a star" 3 "$(cat "$work/out/x/*.txt" 2>/dev/null)"
same "quotes" 4 "$(cat "$work/out/x/q\"u'o\$te.txt" 2>/dev/null)"

mkdir -p "$work/a b/in" "$work/copy of it"
echo 7 > "$work/a b/in/t.txt"
same "blanks in both folders" "1 files" "$(collect "$work/a b/in/" "$work/a b/out/")"
cp -R "$WORKSPACE/bin" "$WORKSPACE/lib" "$work/copy of it/"
same "blanks where it stands" "1 files" "$("$BASH_PROGRAM" "$work/copy of it/bin/collect.sh" "$work/a b/in" "$work/o2" 2>&1)"

mkdir -p "$work/none"
same "nothing to copy" "0 files" "$(collect "$work/none" "$work/empty")"
holds "an empty list" test -f "$work/empty/list" -a ! -s "$work/empty/list"

mkdir -p "$work/re.x|y/in"
echo 8 > "$work/re.x|y/in/t.txt"
collect "$work/re.x|y/in" "$work/o3" >/dev/null
same "signs of sed" t.txt "$(cat "$work/o3/list")"

cd "$work" || exit 1
same "relative folders" "1 files" "$(collect "a b/in" "o4")"
collect one >/dev/null
same "usage" 2 $?
finish
