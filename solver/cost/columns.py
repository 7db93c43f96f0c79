"""Positions of the columns in the cost tables that the numba kernels read. One list, used by the writer and by the readers."""

from __future__ import annotations

# --- per point and layer kind (kind table, float64[points, kinds, KIND_COLUMNS]) ---------------------------------------------
DENSE_PARAMETERS = 0
"""parameters on a rank outside the routed experts (tp-sharded and replicated)"""
EXPERT_PARAMETERS = 1
ACTIVATION = 2
"""+ option: saved bytes of one micro-batch"""
FORWARD_BASE = 6
FORWARD_SLOPE = 7
BACKWARD_BASE = 8
BACKWARD_SLOPE = 9
RECOMPUTE_BASE = 10
"""+ option"""
RECOMPUTE_SLOPE = 14
"""+ option"""
TENSOR_FORWARD = 18
TENSOR_BACKWARD = 19
CONTEXT_FORWARD = 20
CONTEXT_BACKWARD = 21
EXPERT_FORWARD = 22
EXPERT_BACKWARD = 23
TENSOR_HIDDEN = 24
CONTEXT_HIDDEN = 25
EXPERT_HIDDEN = 26
WEIGHT_BASE = 27
"""part of BACKWARD_BASE that makes weight gradients"""
KIND_COLUMNS = 28

# --- recompute options of a layer -------------------------------------------------------------------------------------------
OPTION_NONE = 0
OPTION_CORE_ATTENTION = 1
OPTION_SELECTIVE = 2
OPTION_FULL = 3
OPTIONS = 4

# --- per point (point table, float64[points, POINT_COLUMNS]) -----------------------------------------------------------------
EMBEDDING_PARAMETERS = 0
TABLE_PARAMETERS = 1
NORM_PARAMETERS = 2
"""of the final norm, and of the bias of the head"""
BOUNDARY_BYTES = 3
GATHER_BYTES = 4
LOGITS_BYTES = 5
EMBEDDING_FORWARD = 6
EMBEDDING_BACKWARD = 7
HEAD_FORWARD = 8
HEAD_BACKWARD = 9
POINT_TP = 10
POINT_CP = 11
POINT_EP = 12
POINT_ETP = 13
POINT_GROUP = 14
WEIGHT_BYTES = 15
STREAM_BYTES_PER_S = 16
POINT_MBS = 17
ENCODER_PARAMETERS = 18
"""of the modules before the language model, trained and frozen: what sharded weights gather on the first stage"""
FROZEN_PARAMETERS = 19
ENCODER_SAVED = 20
"""bytes a micro-batch in flight keeps of them"""
ENCODER_WORK = 21
"""bytes of their widest layer while it runs or is rebuilt"""
HEAD_WEIGHT = 22
"""part of HEAD_BACKWARD that makes weight gradients"""
POINT_COLUMNS = 23

# --- per mesh (mesh table, float64[meshes, MESH_COLUMNS]): gradient groups of one stage ---------------------------------------
SHARD_RANKS = 0
SHARD_LATENCY = 1
SHARD_SLOPE = 2
REPLICA_LATENCY = 3
REPLICA_SLOPE = 4
EXPERT_SHARD_RANKS = 5
EXPERT_SHARD_LATENCY = 6
EXPERT_SHARD_SLOPE = 7
EXPERT_REPLICA_LATENCY = 8
EXPERT_REPLICA_SLOPE = 9
PEER_LATENCY = 10
PEER_SLOPE = 11
MESH_DP = 12
REPLICATED_RANKS = 13
EXPERT_REPLICATED_RANKS = 14
SYNC_FIXED = 15
"""seconds a step that do not depend on the bytes: by the nodes that reduce gradients, by the ranks that broadcast parameters"""
SHARD_EXCESS = 16
"""largest shard over an equal one, dense; EXPERT_SHARD_EXCESS of routed experts"""
EXPERT_SHARD_EXCESS = 17
SHARD_LOAD = 18
"""part of the sharding collectives' time that moves data at the innermost tier's rate: what slows compute beside them"""
MESH_COLUMNS = 19

# --- per group (group table, float64[groups, GROUP_COLUMNS]) -----------------------------------------------------------------
CAPACITY_BYTES = 0
LIMIT_BYTES = 1
HOST_LIMIT_BYTES = 2
PCIE_BYTES_PER_S = 3
DEVICES_PER_NODE = 4
GROUP_COLUMNS = 5

# --- scalars of the problem (float64[SCALARS]) --------------------------------------------------------------------------------
WEIGHT_STATE = 0
GRADIENT_STATE = 1
OPTIMIZER_STATE = 2
TIED = 3
GRADIENT_OVERLAP = 4
GATHER_OVERLAP = 5
SHARD_OVERLAP = 6
OVERLAP_SLOWDOWN = 7
PEER_EXPOSED = 8
STEP_OVERHEAD = 9
BUCKET_BYTES = 10
CONTEXT_BYTES = 11
COMMUNICATOR_BYTES = 12
ALLOCATOR_FACTOR = 13
STATIC_ERROR = 14
DYNAMIC_ERROR = 15
OFFLOAD_OVERLAP = 16
OFFLOAD_EFFICIENCY = 17
HOST_UPDATE_BYTES_PER_S = 18
MTP_LAYERS = 19
MTP_KIND = 20
LEAST_WORK = 21
MEAN_WORK = 22
DEMAND_SAFE = 23
OPTIMIZER_EFFICIENCY = 24
KEPT_WEIGHT_STATE = 25
"""bytes a parameter of the weights as they are kept (WEIGHT_STATE: as they are used)"""
KEPT_GRADIENT_STATE = 26
KEPT_OPTIMIZER_STATE = 27
"""with what the optimizer step copies"""
HOST_STATE = 28
LIVE_GRADIENT_STATE = 29
UNPIPED_COPY_STATE = 30
BUCKET_COUNT = 31
WORKING_SET_FACTOR = 32
PIPELINE_KEEPS_GATHERED = 33
SELECTIVE_REBUILDS = 34
EXPERTS_ALWAYS_SHARDED = 35
WHOLE_STEP_STATE = 36
"""what the optimizer step copies where states are not sharded"""
PEER_FIXED = 37
SCALARS = 38
