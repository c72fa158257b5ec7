'use strict';
const { rank } = require('./rank.js');

class Search {
  constructor(client, view) {
    this.client = client;
    this.view = view;
  }

  // Called with the box's text whenever it changes.
  async typed(input) {
    const text = input.trim();
    if (!text) {
      this.view.show({ state: 'empty', items: [] });
      return;
    }
    this.view.show({ state: 'busy', items: this.view.current.items });
    try {
      const items = await this.client.find(text);
      this.view.show({ state: 'done', items: rank(items, text) });
    } catch (error) {
      this.view.show({ state: 'failed', items: [], message: `search failed: ${error.message}` });
    }
  }
}

module.exports = { Search };
