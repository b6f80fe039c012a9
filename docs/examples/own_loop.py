"""Training in a loop of one's own, with one's own DataLoader; then certify, then plot.

``python docs/examples/own_loop.py curve.png`` takes well under a minute. It needs scikit-learn for its 8×8 digits, and
matplotlib.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from smoothcert import SmoothedClassifier, SmoothingLoss

SIGMA = 0.25
torch.manual_seed(0)

# Any data, any loader, any network: inputs without noise, normalisation inside the network.
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images / 16, dtype=torch.float32), torch.tensor(digits.target))
training, test = random_split(data, [len(data) - 200, 200])
loader = DataLoader(training, batch_size=64, shuffle=True)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

# The loss adds the noise. "gaussian" is the plain one; `smoothcert recipes --methods` lists the others.
criterion = SmoothingLoss("consistency", sigma=SIGMA, copies=2, lam=5.0)
optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
network.train()
for epoch in range(15):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(network, x, y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

# Certified in the order of the loader, which doesn't shuffle; its targets aren't looked at.
labels = torch.stack([y for _, y in test])
smoothed = SmoothedClassifier(network, sigma=SIGMA, n=1_000, input_shape=(8, 8))
results = smoothed.certify(DataLoader(test, batch_size=64))
print(f"certified accuracy at radius 0 and 0.5: {results.accuracy(labels, [0.0, 0.5])}")
print(f"average certified radius: {results.acr(labels):.3f}")

axes = results.plot(labels, label="consistency, σ = 0.25")
axes.legend()
axes.figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "curve.png")
