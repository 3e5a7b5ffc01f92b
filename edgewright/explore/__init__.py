"""Sweeps: many compilations of models for targets, precisions and options, on this machine or on a Dask cluster."""
