'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { Server } = require('../src/server.js');

test('what is given wins', () => {
  const server = new Server({ cache: { seconds: 10 } });
  assert.strictEqual(server.headers()['cache-control'], 'max-age=10');
  assert.strictEqual(server.settings.cache.enabled, true);
  assert.strictEqual(server.settings.retry.attempts, 3);
});

test('profiles', () => {
  assert.strictEqual(new Server({}, 'production').headers()['x-frame-options'], 'DENY');
  assert.throws(() => new Server({}, 'moon'), /no profile/);
});
