"""Nothing leaves that the logged model and every constraint have not accepted; certificates."""
