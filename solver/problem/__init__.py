"""What is asked: model, workload, cluster, options; parsing, normal form and digests."""

from solver.problem.cluster import Cluster, DeviceRates, DeviceSpec, FabricTier, Group, Host, Link
from solver.problem.digest import digest, problem_digest, request_digest
from solver.problem.document import load_document
from solver.problem.lengths import Histogram, Lognormal, SequenceLengths
from solver.problem.model import (
    Attention,
    Block,
    DenseMlp,
    LinearAttention,
    MlaAttention,
    Mlp,
    Model,
    MoeMlp,
    SoftmaxAttention,
    Transformer,
)
from solver.problem.normal import normal_form, normalise
from solver.problem.options import CONSTRAINT_WORDS, Constraints, Framework, Objective, Search
from solver.problem.parameters import ParameterCount, count_model_parameters, count_parameters, parameter_count
from solver.problem.parse import parse_problem
from solver.problem.problem import Problem
from solver.problem.statistics import mean_tokens
from solver.problem.workload import GlobalBatch, Kernels, Optimizer, Scenarios, Software, Workload

__all__ = [
    "CONSTRAINT_WORDS",
    "Attention",
    "Block",
    "Cluster",
    "Constraints",
    "DenseMlp",
    "DeviceRates",
    "DeviceSpec",
    "FabricTier",
    "Framework",
    "GlobalBatch",
    "Group",
    "Histogram",
    "Host",
    "Kernels",
    "LinearAttention",
    "Link",
    "Lognormal",
    "MlaAttention",
    "Mlp",
    "Model",
    "MoeMlp",
    "Objective",
    "Optimizer",
    "ParameterCount",
    "Problem",
    "Scenarios",
    "Search",
    "SequenceLengths",
    "SoftmaxAttention",
    "Software",
    "Transformer",
    "Workload",
    "count_model_parameters",
    "count_parameters",
    "digest",
    "load_document",
    "mean_tokens",
    "normal_form",
    "normalise",
    "parameter_count",
    "parse_problem",
    "problem_digest",
    "request_digest",
]
