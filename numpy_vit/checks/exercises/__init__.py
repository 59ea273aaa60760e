"""Exercises: write a layer's backward yourself, and be told which gradient is wrong, how, and where to look."""
