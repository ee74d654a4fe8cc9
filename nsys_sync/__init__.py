"""nsys-sync: where a GPU program's CPU waits for the GPU, at which Python line, and what that costs."""
