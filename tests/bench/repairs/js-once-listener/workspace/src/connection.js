'use strict';
const { Emitter } = require('./emitter.js');

let next = 1;

class Connection extends Emitter {
  constructor() {
    super();
    this.id = next++;
    this.state = 'opening';
  }

  ready() {
    this.state = 'ready';
    this.emit('ready', this);
  }

  close() {
    if (this.state === 'closed') return;
    this.state = 'closed';
    this.emit('close', this);
  }

  // A listener: called with the connection as `this`.
  static onReady() {
    this.label = `connection ${this.id}`;
  }
}

module.exports = { Connection };
