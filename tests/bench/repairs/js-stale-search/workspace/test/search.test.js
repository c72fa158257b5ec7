'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { Client } = require('../src/client.js');
const { Search } = require('../src/search.js');
const { View } = require('../src/view.js');

test('what is found is shown', async () => {
  const view = new View();
  const search = new Search(new Client(async () => [{ name: 'green tea' }, { name: 'Tea' }]), view);
  await search.typed('tea');
  assert.deepStrictEqual(view.current, { state: 'done', items: [{ name: 'Tea' }, { name: 'green tea' }] });
  assert.deepStrictEqual(view.shown, ['busy', 'done']);
});

test('a failure is shown', async () => {
  const view = new View();
  const search = new Search(new Client(async () => { throw new Error('offline'); }), view);
  await search.typed('tea');
  assert.strictEqual(view.current.message, 'search failed: offline');
});
