"""Runs the functions test_* of a file: python -I -S tests.py WORKSPACE FILE, the word of the end on standard input."""

import importlib.util
import os
import sys
import traceback


def main(workspace, file):
    word = sys.stdin.readline().strip()
    sys.path.append(workspace)  # behind the standard library: nothing of the workspace takes its place
    write = os.write
    spec = importlib.util.spec_from_file_location("hidden", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [(name, value) for name, value in vars(module).items() if name.startswith("test_")]
    passed = 0
    for name, test in tests:
        try:
            test()
            passed += 1
        except BaseException:
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
    write(1, f"\n{word} {passed} {len(tests)}\n".encode())


main(*sys.argv[1:])
