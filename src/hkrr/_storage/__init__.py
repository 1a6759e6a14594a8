"""Storage of values in files: conversion to JSON and arrays, and a safetensors format that is safe to read.

Saved models (`hkrr.saving`) and checkpoints (`hkrr._storage.checkpoint`) use this package.
"""
