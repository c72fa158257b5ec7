'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { createApp } = require('../src/app.js');

test('pages', () => {
  const app = createApp();
  assert.strictEqual(app.handle('GET', '/').body, 'home');
  assert.strictEqual(app.handle('GET', '/feed.xml?x=1').body, '<feed/>');
  assert.strictEqual(app.handle('GET', '/user/7').body, 'user 7');
  assert.strictEqual(app.handle('GET', '/files/a/b.txt').body, 'file a/b.txt');
  assert.strictEqual(app.handle('POST', '/').status, 404);
});
