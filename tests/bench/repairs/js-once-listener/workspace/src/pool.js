'use strict';
const { Connection } = require('./connection.js');

class Pool {
  constructor() {
    this.connections = new Set();
    this.closed = [];
  }

  get size() {
    return this.connections.size;
  }

  // Open a connection; `callback(connection)` is called when it is ready, unless it is cancelled before.
  open(callback) {
    const connection = new Connection();
    this.connections.add(connection);
    connection.once('ready', Connection.onReady);
    connection.once('ready', callback);
    connection.once('close', () => this.closed.push(connection.id));
    connection.once('close', () => this.connections.delete(connection));
    return connection;
  }

  cancel(connection, callback) {
    connection.off('ready', callback);
  }
}

module.exports = { Pool };
