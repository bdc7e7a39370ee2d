"""Compiled loops over trees and layers; they hold no Python object and release the interpreter's lock.

They take cells as `int32`, flags as `bool`, and write into arrays that the caller allocates.
"""
