"""Plans: actions one after the other, what each costs, and what makes it cheaper (Naumann & Ntoutsi 2021)."""
