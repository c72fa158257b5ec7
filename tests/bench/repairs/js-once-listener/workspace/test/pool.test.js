'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { Emitter } = require('../src/emitter.js');

test('listeners are called in order', () => {
  const seen = [];
  const emitter = new Emitter();
  emitter.on('x', (n) => seen.push(n)).on('x', (n) => seen.push(n * 2));
  assert.strictEqual(emitter.emit('x', 2), true);
  assert.strictEqual(emitter.emit('y'), false);
  assert.deepStrictEqual(seen, [2, 4]);
});

test('once is once', () => {
  let called = 0;
  const emitter = new Emitter();
  emitter.once('x', () => called++);
  emitter.emit('x');
  emitter.emit('x');
  assert.strictEqual(called, 1);
});
