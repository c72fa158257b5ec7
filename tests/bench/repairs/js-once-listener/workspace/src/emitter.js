'use strict';

class Emitter {
  constructor() {
    this.listeners = new Map();
  }

  on(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, []);
    this.listeners.get(name).push(listener);
    return this;
  }

  once(name, listener) {
    const wrapper = (...values) => {
      this.off(name, wrapper);
      listener(...values);
    };
    return this.on(name, wrapper);
  }

  off(name, listener) {
    const list = this.listeners.get(name) || [];
    const at = list.indexOf(listener);
    if (at >= 0) list.splice(at, 1);
    return this;
  }

  emit(name, ...values) {
    const list = this.listeners.get(name) || [];
    for (const listener of list) listener.apply(this, values);
    return list.length > 0;
  }

  count(name) {
    return (this.listeners.get(name) || []).length;
  }
}

module.exports = { Emitter };
