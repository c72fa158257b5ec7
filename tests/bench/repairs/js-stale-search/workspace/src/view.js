'use strict';

class View {
  constructor() {
    this.current = { state: 'empty', items: [] };
    this.shown = [];
  }

  show(state) {
    this.current = state;
    this.shown.push(state.state);
  }
}

module.exports = { View };
