#!/bin/sh
set -e
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -d "$out" src/news/*.java test/NewsTest.java
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$out" NewsTest
