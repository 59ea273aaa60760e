"""A model as one HTML file: how it learned, what it gets wrong, and where it looks."""
