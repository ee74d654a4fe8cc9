"""JAX, twelve seconds of training. Where the host waits for the GPU the line says so."""

import time

import jax
import jax.numpy as jnp
import numpy as np


def loss_of(weights, batch):
    hidden = batch
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return jnp.mean((hidden - batch) ** 2)


@jax.jit
def train_step(weights, batch):
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients)], loss


keys = jax.random.split(jax.random.key(0), 6)
weights = [jax.random.normal(key, (4096, 4096)) / 64 for key in keys]
batches = [np.random.default_rng(seed).standard_normal((4096, 4096), dtype=np.float32) for seed in range(4)]

losses = []
until = time.monotonic() + 12
while time.monotonic() < until:
    batch = jax.device_put(batches[len(losses) % 4])
    weights, loss = train_step(weights, batch)
    losses.append(float(loss))  # sync

print(f"{len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")
