"""How an explained model becomes an MLflow model: built, sealed, logged and registered."""
