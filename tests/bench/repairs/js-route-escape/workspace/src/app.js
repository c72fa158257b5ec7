'use strict';
const { Router } = require('./router.js');

function createApp() {
  const router = new Router();
  router.add('GET', '/', () => ({ status: 200, body: 'home' }));
  router.add('GET', '/feed.xml', () => ({ status: 200, body: '<feed/>' }));
  router.add('GET', '/user/:id', ({ id }) => ({ status: 200, body: `user ${id}` }));
  router.add('GET', '/files/*', ({ rest }) => ({ status: 200, body: `file ${rest}` }));
  return {
    router,
    handle(method, url) {
      const path = url.split('?')[0];
      const found = router.find(method, path);
      return found ? found.handler(found.params) : { status: 404, body: 'not found' };
    },
  };
}

module.exports = { createApp };
