'use strict';

const DEFAULTS = {
  port: 8080,
  cache: { enabled: true, seconds: 60 },
  retry: { attempts: 3, pause: 0.5 },
  headers: {},
  origins: ['https://example.org'],
  name: 'server',
};

const PROFILES = {
  development: {},
  production: { cache: { seconds: 600 }, headers: { 'x-frame-options': 'DENY' } },
};

module.exports = { DEFAULTS, PROFILES };
