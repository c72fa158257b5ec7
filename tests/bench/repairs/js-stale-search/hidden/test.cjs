'use strict';
const { strictEqual, deepStrictEqual } = require('node:assert');
const { Client } = require('../workspace/src/client.js');
const { Search } = require('../workspace/src/search.js');
const { View } = require('../workspace/src/view.js');

const settle = () => new Promise((resolve) => setImmediate(resolve));

function box() {
  const open = {};
  const asked = [];
  const request = (text) => {
    asked.push(text);
    return new Promise((resolve, reject) => {
      open[text] = { answer: (...names) => resolve(names.map((name) => ({ name }))), fail: () => reject(new Error(text)) };
    });
  };
  const view = new View();
  const search = new Search(new Client(request), view);
  return { open, asked, view, type: (text) => { search.typed(text); }, names: () => view.current.items.map((i) => i.name) };
}

module.exports = {
  async 'an older answer that comes later is not shown'() {
    const b = box();
    b.type('te');
    b.type('tea');
    b.open.tea.answer('tea pot');
    await settle();
    b.open.te.answer('tent');
    await settle();
    deepStrictEqual(b.names(), ['tea pot']);
    strictEqual(b.view.current.state, 'done');
  },
  async 'an older answer that comes first does not stop the spinner'() {
    const b = box();
    b.type('te');
    b.type('tea');
    b.open.te.answer('tent');
    await settle();
    strictEqual(b.view.current.state, 'busy');
    b.open.tea.answer('tea');
    await settle();
    deepStrictEqual([b.view.current.state, b.names()], ['done', ['tea']]);
  },
  async 'an older failure is not told'() {
    const b = box();
    b.type('te');
    b.type('tea');
    b.open.tea.answer('tea');
    await settle();
    b.open.te.fail();
    await settle();
    strictEqual(b.view.current.state, 'done');
  },
  async 'an emptied box stays empty'() {
    const b = box();
    b.type('tea');
    b.type('  ');
    b.open.tea.answer('tea');
    await settle();
    deepStrictEqual(b.view.current, { state: 'empty', items: [] });
  },
  async 'every text is asked for'() {
    const b = box();
    b.type('te');
    b.type('tea');
    deepStrictEqual(b.asked, ['te', 'tea']);
  },
  async 'the same text is not asked for twice at a time'() {
    const b = box();
    b.type('tea');
    b.type('tea ');
    deepStrictEqual(b.asked, ['tea']);
    b.open.tea.answer('tea');
    await settle();
    deepStrictEqual([b.view.current.state, b.names()], ['done', ['tea']]);
  },
  async 'but again when it has ended'() {
    const b = box();
    b.type('tea');
    b.open.tea.fail();
    await settle();
    strictEqual(b.view.current.message, 'search failed: tea');
    b.type('tea');
    b.open.tea.answer('tea');
    await settle();
    deepStrictEqual([b.asked, b.names()], [['tea', 'tea'], ['tea']]);
  },
  async 'the newest failure is told'() {
    const b = box();
    b.type('te');
    b.type('tea');
    b.open.te.answer('tent');
    b.open.tea.fail();
    await settle();
    strictEqual(b.view.current.message, 'search failed: tea');
  },
  async 'back to an older text'() {
    const b = box();
    b.type('te');
    b.type('tea');
    b.type('te');
    b.open.tea.answer('tea');
    await settle();
    strictEqual(b.view.current.state, 'busy');
    b.open.te.answer('tent');
    await settle();
    deepStrictEqual([b.view.current.state, b.names()], ['done', ['tent']]);
  },
};
