'use strict';

const isObject = (value) => Object.prototype.toString.call(value) === '[object Object]';

// `base` with what `over` says, objects name by name.
function merge(base, over) {
  for (const name of Object.keys(over || {})) {
    if (isObject(over[name])) base[name] = merge(base[name] || {}, over[name]);
    else base[name] = over[name] || base[name];
  }
  return base;
}

module.exports = { merge };
