"""What lies in the folder of an explained model, written once and checked before it is read."""
