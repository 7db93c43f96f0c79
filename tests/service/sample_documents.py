"""Small complete answers in the shape of the contract, for tests of rendering and of the command line."""

from __future__ import annotations


def memory_entry(stage, group, verdict="safe"):
    items = {"weights": 9.0e9, "gradients": 18.0e9, "optimizer": 13.0e9, "activations": 20.0e9}
    allocated = sum(items.values())
    return {
        "module": "model",
        "stage": stage,
        "group": group,
        "items": items,
        "allocated": allocated,
        "allocator": 2.0e9,
        "reserved": allocated + 2.0e9,
        "context": 1.5e9,
        "device": allocated + 3.5e9,
        "device_interval": [60.0e9, 67.0e9],
        "limit": 79.9e9,
        "capacity": 85.0e9,
        "host": 1.0e11,
        "verdict": verdict,
    }


def stage(chunk, holds, group, first):
    devices = [{"group": group, "first": first, "count": 8}]
    mesh = [{"axis": "tp", "size": 4, "stride": 1}, {"axis": "dp", "size": 2, "stride": 4}]
    shard = {kind: {"replicate": 1, "shard": 2} for kind in ("parameters", "gradients", "optimizer")}
    strategy = {
        "sequence_parallel": True,
        "shard": shard,
        "recompute": {"kind": "selective", "modules": ["core_attn"]},
        "offload": {"optimizer": 0.5, "activations": 0.0},
    }
    part = {"devices": devices, "ranks": [[first, first + 7]], "mesh": mesh, "share": 1.0, "micro_batches": 16}
    override = {"layers": [chunk[0], chunk[0]], "recompute": {"kind": "full"}}
    return {"chunks": [chunk], "holds": [holds], "parts": [part], "strategy": strategy, "overrides": [override]}


def plan_document(plan_id, step_time_s=1.5):
    return {
        "id": plan_id,
        "layout": {
            "modules": [{"module": "model", "stages": [stage([0, 3], "embedding", "big", 0), stage([4, 7], "head", "small", 0)]}],
            "schedule": {"kind": "1f1b"},
            "mbs": 1,
            "vpp": 1,
            "sequence_policy": "packed_static_cp",
            "gradient_sync": {"kind": "reduce_scatter", "overlap": True},
            "idle_devices": [],
            "equivalence": "exact",
        },
        "prediction": {
            "step_time_s": step_time_s,
            "step_time_interval_s": [1.4, 1.6],
            "tokens_per_s": 12345.6,
            "tokens_per_s_per_device": 771.6,
            "mfu": 0.42,
            "mfu_convention": "model FLOPs / time / peak",
            "padding_fraction": 0.01,
            "time_breakdown_s": {
                "compute": 1.2,
                "communication": {"tp": {"exposed": 0.1, "hidden": 0.05}},
                "bubble": 0.15,
                "imbalance": 0.0,
                "optimizer": 0.05,
            },
            "memory_bytes": [memory_entry(0, "big"), memory_entry(1, "small", "fits")],
            "verdict": "safe",
            "cost": {"per_1e9_tokens": 1000.0, "currency": "USD"},
            "energy_joules": 1.0e6,
            "provenance": {"compute": "analytical"},
        },
        "expressible_in": ["fake"],
        "warnings": ["[bold]not markup[/]"],
        "versions": {"solver": "0", "cost_model": "0", "data": "0"},
    }


def certificate(gap):
    return {
        "lower_bound_s": None if gap is None else 1.5 * (1 - gap),
        "gap": gap,
        "cells": {"total": 100, "bound": 60, "infeasible": 30, "evaluated": 10, "open": 0},
        "space": {
            "dimensions": {"tp": [1, 2, 4], "groups": [["big"], ["big", "small"]], "many": list(range(40))},
            "framework": {"name": "any", "version": "latest-known"},
            "count": 123456,
        },
        "sampling_interval_s": [1.45, 1.55],
    }


def result_document(status, best_id, other_id, stopped_by="proof"):
    """A result of any status."""
    common = {"stopped_by": stopped_by, "reproducible": stopped_by == "proof"}
    if status == "unknown":
        return {"status": status, "certificate": certificate(None), **common}
    if status == "infeasible":
        change = {"pointer": "/cluster/groups/0/nodes", "value": 2}
        relaxation = {"changes": [change], "text": "Two nodes.", "plan_id": other_id, "step_time_s": 2.0, "verdict": "safe"}
        binds = {"binding": "device_memory", "text": "States need more than there is.", "relaxations": [relaxation]}
        return {"status": status, "certificate": certificate(None), "infeasible": binds, **common}
    other = {"plan_id": other_id, "summary": "tp 8", "step_time_s": 1.6, "slower_by_fraction": 0.066, "tied": True}
    return {
        "status": status,
        "plan": plan_document(best_id),
        "alternatives": [{**other, "verdict": "fits", "why": "waits for the link"}],
        "certificate": certificate(0.0 if status == "optimal" else 0.03),
        "explanation": [{"code": "memory_binds", "text": "Stage 1 is full."}],
        **common,
    }
