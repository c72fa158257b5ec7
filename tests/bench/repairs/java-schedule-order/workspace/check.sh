#!/bin/sh
set -e
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -d "$out" src/jobs/*.java test/JobsTest.java
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$out" JobsTest
