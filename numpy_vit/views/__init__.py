"""What people look at: curves, maps and tables."""
