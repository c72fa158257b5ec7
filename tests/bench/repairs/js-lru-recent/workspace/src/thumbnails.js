'use strict';
const { Lru } = require('./lru.js');
const { sizeOf } = require('./sizes.js');

// `render(path)` gives a thumbnail ({ bytes }), or null where there is none.
class Thumbnails {
  constructor(render, limit = 1000) {
    this.render = render;
    this.cache = new Lru(limit);
  }

  of(path) {
    const known = this.cache.get(path);
    if (known) return known;
    const made = this.render(path);
    this.cache.set(path, made, sizeOf(made));
    return made;
  }

  changed(path) {
    this.cache.delete(path);
  }
}

module.exports = { Thumbnails };
