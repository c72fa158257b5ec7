"""Hold the chat: the screen of a window, and the parts that own what happens on it."""
