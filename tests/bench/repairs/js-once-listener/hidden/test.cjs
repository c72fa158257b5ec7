'use strict';
const { strictEqual, deepStrictEqual } = require('node:assert');
const { Emitter } = require('../workspace/src/emitter.js');
const { Pool } = require('../workspace/src/pool.js');

module.exports = {
  'a connection gets ready'() {
    const pool = new Pool();
    const seen = [];
    const connection = pool.open((c) => seen.push(c.label));
    connection.ready();
    deepStrictEqual(seen, [`connection ${connection.id}`]);
  },
  'a closed connection leaves the pool'() {
    const pool = new Pool();
    const connection = pool.open(() => {});
    connection.close();
    strictEqual(pool.size, 0);
    deepStrictEqual(pool.closed, [connection.id]);
  },
  'a cancelled callback is not called'() {
    const pool = new Pool();
    const seen = [];
    const callback = () => seen.push(1);
    const connection = pool.open(callback);
    pool.cancel(connection, callback);
    connection.ready();
    deepStrictEqual(seen, []);
  },
  'this, for on and once'() {
    const emitter = new Emitter();
    const seen = [];
    emitter.on('x', function () { seen.push(this); });
    emitter.once('x', function () { seen.push(this); });
    emitter.emit('x');
    strictEqual(seen.length, 2);
    strictEqual(seen.every((who) => who === emitter), true);
  },
  'none is skipped when one goes'() {
    const emitter = new Emitter();
    const seen = [];
    const a = () => { seen.push('a'); emitter.off('x', a); };
    emitter.on('x', a).on('x', () => seen.push('b')).once('x', () => seen.push('c')).on('x', () => seen.push('d'));
    emitter.emit('x');
    emitter.emit('x');
    strictEqual(seen.join(''), 'abcdbd');
  },
  'what is added meanwhile waits'() {
    const emitter = new Emitter();
    const seen = [];
    emitter.once('x', () => emitter.on('x', () => seen.push('late')));
    emitter.emit('x');
    deepStrictEqual(seen, []);
    emitter.emit('x');
    deepStrictEqual(seen, ['late']);
  },
  'what is removed meanwhile is still told once'() {
    const emitter = new Emitter();
    const seen = [];
    const late = () => seen.push('late');
    emitter.on('x', () => emitter.off('x', late)).on('x', late);
    emitter.emit('x');
    emitter.emit('x');
    deepStrictEqual(seen, ['late']);
  },
  'off takes the newest'() {
    const emitter = new Emitter();
    const seen = [];
    const a = () => seen.push('a');
    emitter.on('x', a).on('x', () => seen.push('b')).once('x', a);
    emitter.off('x', a);
    emitter.emit('x');
    strictEqual(seen.join(''), 'ab');
    strictEqual(emitter.count('x'), 2);
  },
  'once with several values, and again from inside'() {
    const emitter = new Emitter();
    const seen = [];
    emitter.once('x', (a, b) => { seen.push(a + b); emitter.emit('x', 5, 5); });
    emitter.emit('x', 1, 2);
    deepStrictEqual(seen, [3]);
  },
};
