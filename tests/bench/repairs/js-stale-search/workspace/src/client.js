'use strict';

class Client {
  // `request(text)` is a promise of items.
  constructor(request) {
    this.request = request;
    this.pending = null;
  }

  // The items for a text. The same question is not asked twice at a time.
  find(text) {
    if (!this.pending) {
      this.pending = this.request(text).finally(() => {
        this.pending = null;
      });
    }
    return this.pending;
  }
}

module.exports = { Client };
