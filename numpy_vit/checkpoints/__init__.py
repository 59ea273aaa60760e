"""Files to trees of arrays and back; nothing in a file is ever executed."""
