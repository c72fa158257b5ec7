'use strict';

// A pattern as a regular expression and the names of its parameters, in order.
function compile(pattern) {
  const names = [];
  const source = pattern
    .split('/')
    .map((part, index, all) => {
      if (part === '*' && index === all.length - 1) {
        names.push('rest');
        return '(.*)';
      }
      if (part.startsWith(':')) {
        names.push(part.slice(1));
        return '([^/]+)';
      }
      return part;
    })
    .join('/');
  return { expression: new RegExp(`^${source}$`), names };
}

function match(compiled, path) {
  const found = compiled.expression.exec(path);
  if (!found) return null;
  const params = {};
  compiled.names.forEach((name, i) => {
    params[name] = decodeURIComponent(found[i + 1]);
  });
  return params;
}

module.exports = { compile, match };
