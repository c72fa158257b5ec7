'use strict';
const { strictEqual, deepStrictEqual } = require('node:assert');
const { createApp } = require('../workspace/src/app.js');
const { compile, match } = require('../workspace/src/pattern.js');

const params = (pattern, path) => {
  const found = match(compile(pattern), path);
  return found && { ...found };
};

module.exports = {
  'a dot is a dot'() {
    const app = createApp();
    strictEqual(app.handle('GET', '/feedzxml').status, 404);
    strictEqual(app.handle('GET', '/feed.xml').status, 200);
  },
  'a plus'() {
    const app = createApp();
    app.router.add('GET', '/c++', () => ({ status: 200, body: 'c' }));
    strictEqual(app.handle('GET', '/c++').body, 'c');
    strictEqual(app.handle('GET', '/ccc').status, 404);
  },
  'every sign'() {
    for (const sign of '.+?^${}()|[]\\*') {
      deepStrictEqual(params(`/a${sign}b/c`, `/a${sign}b/c`), {}, sign);
      strictEqual(params(`/a${sign}b/c`, '/ab/c'), null, sign);
    }
  },
  'an alternative is none'() {
    strictEqual(params('/a|/b', '/a'), null);
  },
  'parameters'() {
    deepStrictEqual(params('/user/:id/v1.0/:name', '/user/7/v1.0/x%20y'), { id: '7', name: 'x y' });
    strictEqual(params('/user/:id/v1.0', '/user/7/v1x0'), null);
  },
  'a parameter is not empty'() {
    strictEqual(params('/user/:id', '/user/'), null);
  },
  'the star'() {
    deepStrictEqual(params('/files/*', '/files/a/b.c'), { rest: 'a/b.c' });
    deepStrictEqual(params('/files/*', '/files/'), { rest: '' });
  },
  'a star in the middle is a star'() {
    deepStrictEqual(params('/a/*/b', '/a/*/b'), {});
    strictEqual(params('/a/*/b', '/a//b'), null);
  },
};
