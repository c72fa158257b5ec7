'use strict';
const { DEFAULTS, PROFILES } = require('./defaults.js');
const { merge } = require('./merge.js');

function settings(given = {}, profile = 'development') {
  if (!PROFILES[profile]) throw new Error(`there is no profile ${profile}`);
  return merge(merge(DEFAULTS, PROFILES[profile]), given);
}

module.exports = { settings };
