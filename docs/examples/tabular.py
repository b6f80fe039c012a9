"""Which measurements of cells may be off, and by how much, before a diagnosis changes: features in their own units.

``python docs/examples/tabular.py`` takes well under a minute. It needs scikit-learn, whose breast-cancer data it uses.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.models.adapt import adapt
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.smoothing.fits.fit import fit_into
from smoothcert.smoothing.fits.plan import FitPlan, ranked_features

data = load_breast_cancer()
order = np.random.default_rng(0).permutation(len(data.target))
train, test = order[:400], order[400:]

# The units differ wildly: an area is in the hundreds, a smoothness around 0.1. Scaling belongs inside the model, so
# that noise, and what is certified, is in the units of the data.
spread = data.data[train].std(0)
noisy = data.data[train].repeat(20, 0) + np.random.default_rng(1).normal(size=(8000, 30)) * 0.3 * spread
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(
    noisy, data.target[train].repeat(20)
)

# One σ for each feature, found by votes alone: any model will do. `scale="std"` starts at 0.3 standard deviations.
base = adapt(model, "hard")
fitted_on = Dataset(
    "breast cancer", data.data[train], data.target[train].astype(np.int64), ("malignant", "benign")
)
plan = FitPlan(init=0.3, scale="std", route="votes", validation=100, votes=64, tried=100)
with tempfile.TemporaryDirectory() as folder:
    fit = fit_into(Path(folder) / "fit", base, fitted_on, plan)
assert fit.noise is not None

# Certify unseen patients. No single σ suits areas and smoothnesses alike; a share of each feature's spread does better,
# and the fitted noise better still.
inputs, labels = data.data[test].astype(np.float32), data.target[test]
noises = {
    "one σ for all features": Gaussian(fit.noise.sigma),
    "0.3 standard deviations": DiagonalGaussian(0.3 * spread),
    "fitted σ": fit.noise,
}
radius = 0.0
for name, noise in noises.items():
    smoothed = SmoothedClassifier(model, CertifyPlan(noise, n=2000))
    answers = smoothed.certify_batch(inputs, index=0)
    right = [a for a, label in zip(answers, labels) if a.predicted == label and a.region is not None]
    radius = statistics.median(a.region.volume_radius for a in right if a.region) if right else 0.0
    print(
        f"{name}: {len(right)} of {len(test)} patients right and certified, median equal-volume radius {radius:.3g}"
    )

# What the certificate of a typical patient (median region) says about each measurement alone.
features = ranked_features(fit.noise.sigmas, 0.3 * spread, data.feature_names.tolist(), radius)
print(f"\n{'feature':<26} {'median':>10} {'may change':>12} {'in standard deviations':>22}")
for feature in features:
    k = feature.place[0]
    assert feature.half_width is not None
    print(
        f"{feature.name:<26} {np.median(data.data[:, k]):>10.4g} {'±':>2} {feature.half_width:>9.3g} "
        f"{feature.half_width / spread[k]:>22.2f}"
    )
print(f"\nleast safe to get wrong: {', '.join(feature.name for feature in features[:3])}")
print(f"safest: {', '.join(feature.name for feature in features[-3:])}")
