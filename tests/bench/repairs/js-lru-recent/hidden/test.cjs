'use strict';
const { strictEqual, deepStrictEqual } = require('node:assert');
const { Lru } = require('../workspace/src/lru.js');
const { Thumbnails } = require('../workspace/src/thumbnails.js');

const filled = (limit, ...keys) => keys.reduce((cache, key) => cache.set(key, key), new Lru(limit));

module.exports = {
  'reading is use'() {
    const cache = filled(3, 'a', 'b', 'c');
    cache.get('a');
    cache.set('d', 'd');
    deepStrictEqual([cache.has('a'), cache.has('b')], [true, false]);
  },
  'writing is use'() {
    const cache = filled(3, 'a', 'b', 'c');
    cache.set('a', 'new');
    cache.set('d', 'd');
    strictEqual(cache.get('a'), 'new');
    strictEqual(cache.has('b'), false);
  },
  'looking is none'() {
    const cache = filled(2, 'a', 'b');
    cache.has('a');
    cache.set('c', 'c');
    strictEqual(cache.has('a'), false);
  },
  'values that are falsy'() {
    const cache = new Lru(5);
    for (const value of [null, 0, '', false]) {
      cache.set('k', value);
      strictEqual(cache.get('k'), value);
    }
    strictEqual(cache.get('missing'), undefined);
  },
  'the logo stays'() {
    const rendered = [];
    const thumbs = new Thumbnails((path) => (rendered.push(path), { bytes: 'xxxx' }), 12);
    for (let page = 0; page < 10; page++) {
      thumbs.of('logo');
      thumbs.of(`picture ${page}`);
    }
    strictEqual(rendered.filter((path) => path === 'logo').length, 1);
  },
  'no thumbnail is remembered'() {
    let asked = 0;
    const thumbs = new Thumbnails(() => (asked++, null));
    strictEqual(thumbs.of('x'), null);
    strictEqual(thumbs.of('x'), null);
    strictEqual(asked, 1);
  },
  'sizes are counted'() {
    const cache = new Lru(10);
    cache.set('a', 1, 4).set('b', 2, 4).set('a', 3, 6);
    strictEqual(cache.used, 10);
    cache.set('c', 4, 1);
    deepStrictEqual([cache.keys(), cache.used], [['a', 'c'], 7]);
  },
  'what is too large is not kept, nor is what it replaces'() {
    const cache = new Lru(10);
    cache.set('a', 1, 4).set('a', 2, 11);
    deepStrictEqual([cache.get('a'), cache.used, cache.keys()], [undefined, 0, []]);
  },
};
