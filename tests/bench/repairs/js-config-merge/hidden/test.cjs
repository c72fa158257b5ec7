'use strict';
const { strictEqual, deepStrictEqual, notStrictEqual } = require('node:assert');
const { Server } = require('../workspace/src/server.js');
const { merge } = require('../workspace/src/merge.js');
const { DEFAULTS } = require('../workspace/src/defaults.js');

module.exports = {
  'a fresh server has the defaults'() {
    deepStrictEqual(new Server().settings, {
      port: 8080, cache: { enabled: true, seconds: 60 }, retry: { attempts: 3, pause: 0.5 }, headers: {},
      origins: ['https://example.org'], name: 'server',
    });
  },
  'values that are false'() {
    const server = new Server({ cache: { enabled: false, seconds: 0 }, name: '', retry: { attempts: 0 } });
    strictEqual(server.headers()['cache-control'], 'no-store');
    deepStrictEqual([server.settings.cache.seconds, server.settings.name], [0, '']);
    let sent = 0;
    strictEqual(server.deliver(() => (sent++, false)), false);
    strictEqual(sent, 1);
  },
  'nothing leaks into the next server'() {
    new Server({ headers: { 'x-team': 'core' }, cache: { seconds: 5 }, port: 1 }, 'production');
    deepStrictEqual(new Server().headers(), { 'cache-control': 'max-age=60' });
    strictEqual(new Server().settings.port, 8080);
  },
  'nor through what a server changes itself'() {
    const server = new Server();
    server.settings.headers.a = 'b';
    server.settings.origins.push('x');
    deepStrictEqual(DEFAULTS.headers, {});
    deepStrictEqual(new Server().settings.origins, ['https://example.org']);
  },
  'what was given is not changed'() {
    const given = { headers: { a: '1' }, origins: ['y'] };
    const server = new Server(given, 'production');
    server.settings.headers.c = 'd';
    deepStrictEqual(given, { headers: { a: '1' }, origins: ['y'] });
    notStrictEqual(server.settings.origins, given.origins);
  },
  'null and undefined'() {
    const { settings } = new Server({ name: null, port: undefined, cache: { seconds: undefined } });
    deepStrictEqual([settings.name, settings.port, settings.cache.seconds], [null, 8080, 60]);
  },
  'lists are replaced, objects replace what is none'() {
    deepStrictEqual(merge({ a: [1, 2], b: 1 }, { a: [3], b: { c: 1 } }), { a: [3], b: { c: 1 } });
    deepStrictEqual(merge({ b: { c: 1 } }, { b: 2 }), { b: 2 });
  },
  'every object stays what it was'() {
    merge({}, JSON.parse('{"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}}'));
    strictEqual({}.polluted, undefined);
  },
};
