"""Training: optimizers on flat buffers, parameter groups, clipping, schedules and the moving average."""
