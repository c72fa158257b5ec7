'use strict';
const { compile, match } = require('./pattern.js');

class Router {
  constructor() {
    this.routes = [];
  }

  add(method, pattern, handler) {
    this.routes.push({ method, compiled: compile(pattern), handler });
    return this;
  }

  // The first route that fits: { handler, params }, null where none does.
  find(method, path) {
    for (const route of this.routes) {
      if (route.method !== method) continue;
      const params = match(route.compiled, path);
      if (params) return { handler: route.handler, params };
    }
    return null;
  }
}

module.exports = { Router };
