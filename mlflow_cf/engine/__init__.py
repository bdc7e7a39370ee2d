"""The engine: nearest first under the bounds of an opened model, with proofs (docs/development/engine.md)."""
