"""Batches on a layout: rows dealt to replicas, the price of a step, and a batch of layouts priced at once."""
