// Runs the functions that a file exports: node tests.cjs FILE, the word of the end on standard input.
'use strict';
const fs = require('node:fs');

const word = fs.readFileSync(0, 'utf8').trim();
const write = fs.writeSync;
const exit = process.exit.bind(process);
const tests = Object.entries(require(process.argv[2]));

async function main() {
  let passed = 0;
  for (const [name, test] of tests) {
    try {
      await test();
      passed += 1;
    } catch (error) {
      write(1, `${name} failed: ${(error && error.stack) || error}\n`);
    }
  }
  write(1, `\n${word} ${passed} ${tests.length}\n`);
  exit(0);
}

main();
