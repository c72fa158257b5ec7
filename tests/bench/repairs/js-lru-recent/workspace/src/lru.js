'use strict';

// A cache that drops the least recently used entries. A Map keeps the order in which keys were set.
class Lru {
  constructor(limit) {
    this.limit = limit;
    this.used = 0;
    this.entries = new Map();
  }

  has(key) {
    return this.entries.has(key);
  }

  get(key) {
    const entry = this.entries.get(key);
    if (!entry || !entry.value) return undefined;
    return entry.value;
  }

  set(key, value, size = 1) {
    const old = this.entries.get(key);
    if (old) this.used -= old.size;
    if (size > this.limit) return this;
    this.entries.set(key, { value, size });
    this.used += size;
    for (const [oldest, entry] of this.entries) {
      if (this.used <= this.limit) break;
      this.entries.delete(oldest);
      this.used -= entry.size;
    }
    return this;
  }

  delete(key) {
    const entry = this.entries.get(key);
    if (!entry) return false;
    this.used -= entry.size;
    return this.entries.delete(key);
  }

  keys() {
    return [...this.entries.keys()];
  }
}

module.exports = { Lru };
