'use strict';

// What an entry counts for in the cache: an empty answer costs a little, too.
function sizeOf(thumbnail) {
  return thumbnail === null ? 1 : Math.max(1, thumbnail.bytes.length);
}

module.exports = { sizeOf };
