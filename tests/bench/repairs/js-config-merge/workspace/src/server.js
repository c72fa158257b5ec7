'use strict';
const { settings } = require('./settings.js');

class Server {
  constructor(given, profile) {
    this.settings = settings(given, profile);
  }

  headers() {
    const { cache, headers } = this.settings;
    return { ...headers, 'cache-control': cache.enabled ? `max-age=${cache.seconds}` : 'no-store' };
  }

  // Calls `send` until it succeeds: once, and then as often as settings say.
  deliver(send) {
    for (let left = this.settings.retry.attempts; ; left--) {
      if (send()) return true;
      if (left <= 0) return false;
    }
  }
}

module.exports = { Server };
