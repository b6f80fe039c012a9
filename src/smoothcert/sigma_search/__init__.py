"""Data-dependent smoothing: for each input the σ at which its certified radius is largest (Alfarra et al. 2020)."""

from smoothcert.sigma_search.ascent import radius_gradient
from smoothcert.sigma_search.base import SEARCHES, SearchResult, SigmaSearch, search_name
from smoothcert.sigma_search.ellipsoid import EllipsoidSearch
from smoothcert.sigma_search.gradient import GradientSearch
from smoothcert.sigma_search.grid import GridSearch
from smoothcert.sigma_search.ladder import LadderSearch
from smoothcert.sigma_search.problem import Problem
from smoothcert.sigma_search.windows import search_each

__all__ = [
    "SEARCHES",
    "EllipsoidSearch",
    "GradientSearch",
    "GridSearch",
    "LadderSearch",
    "Problem",
    "SearchResult",
    "SigmaSearch",
    "radius_gradient",
    "search_each",
    "search_name",
]
