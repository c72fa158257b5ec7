'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { Lru } = require('../src/lru.js');
const { Thumbnails } = require('../src/thumbnails.js');

test('a thumbnail is rendered once', () => {
  let rendered = 0;
  const thumbs = new Thumbnails((path) => ({ bytes: `${path}${++rendered}` }));
  assert.strictEqual(thumbs.of('a').bytes, 'a1');
  assert.strictEqual(thumbs.of('a').bytes, 'a1');
  thumbs.changed('a');
  assert.strictEqual(thumbs.of('a').bytes, 'a2');
});

test('the cache is limited', () => {
  const cache = new Lru(3);
  for (const key of ['a', 'b', 'c', 'd']) cache.set(key, key);
  assert.deepStrictEqual(cache.keys(), ['b', 'c', 'd']);
});
