"""Plans: sequences of actions with costs, and relationships that make steps cheaper (Naumann & Ntoutsi 2021)."""
