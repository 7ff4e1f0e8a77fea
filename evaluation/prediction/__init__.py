"""Prediction of deterioration from hourly vitals: labels, features, models, measures."""

from evaluation.prediction.measures import auroc, auroc_bootstrap

__all__ = ["auroc", "auroc_bootstrap"]
