"""One file a command, thin: parse, call, print."""
