"""CuPy, twelve seconds of it. Where the host waits for the GPU the line says so."""

import time

import cupy

matrix = cupy.random.rand(4096, 4096, dtype=cupy.float32) / 4096
vector = cupy.ones(4096, dtype=cupy.float32)

norms = []
until = time.monotonic() + 12
while time.monotonic() < until:
    for _ in range(8):
        matrix = matrix @ matrix
        matrix /= cupy.linalg.norm(matrix)
    vector = matrix @ vector
    norms.append(float(cupy.linalg.norm(vector)))  # sync
    rows = cupy.asnumpy(matrix[:64])  # sync
    cupy.cuda.Device().synchronize()  # sync

print(f"{len(norms)} rounds, {rows.shape}")
