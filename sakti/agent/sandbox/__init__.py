"""Keep the commands of the model inside a boundary that the operating system holds."""
